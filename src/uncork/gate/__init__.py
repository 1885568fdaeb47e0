"""The P2P verification: one Fabric interface, three fabrics, criteria, localisation."""
