/* A stand-in for the NVIDIA driver: its name, version, parameters and /proc files, and nothing behind them. */
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#define VERSION "580.95.05"

static int NVreg_EnablePCIERelaxedOrderingMode;
module_param(NVreg_EnablePCIERelaxedOrderingMode, int, 0444);
static char *NVreg_RegistryDwords = "";
module_param(NVreg_RegistryDwords, charp, 0444);

static bool proprietary; /* of the lab: which of the two kernel modules it says to be */
module_param(proprietary, bool, 0444);

static int params_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "EnablePCIERelaxedOrderingMode: %d\n", NVreg_EnablePCIERelaxedOrderingMode);
	seq_printf(file, "RegistryDwords: \"%s\"\n", NVreg_RegistryDwords);
	return 0;
}

static int version_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "NVRM version: NVIDIA UNIX %s  " VERSION "  Release Build  (stand-in)\n",
		   proprietary ? "x86_64 Kernel Module" : "Open Kernel Module for x86_64");
	return 0;
}

/* Binds to the functions that carry NVIDIA's id, so that sysfs shows a driver. */
static int bind(struct pci_dev *device, const struct pci_device_id *id)
{
	return 0;
}

static const struct pci_device_id ids[] = {
	{ .vendor = 0x10de, .device = PCI_ANY_ID, .subvendor = PCI_ANY_ID, .subdevice = PCI_ANY_ID,
	  .class = 0x030200, .class_mask = 0xffff00 },
	{ }
};

static struct pci_driver driver = { .name = "nvidia", .id_table = ids, .probe = bind };

/* What nvidia-uvm and nvidia-peermem of the lab depend on. */
int nvidia_standin_users;
EXPORT_SYMBOL_GPL(nvidia_standin_users);

static int __init start(void)
{
	proc_mkdir("driver/nvidia", NULL);
	proc_create_single("driver/nvidia/params", 0444, NULL, params_show);
	proc_create_single("driver/nvidia/version", 0444, NULL, version_show);
	return pci_register_driver(&driver);
}

static void __exit end(void)
{
	pci_unregister_driver(&driver);
	remove_proc_subtree("driver/nvidia", NULL);
}

module_init(start);
module_exit(end);
MODULE_VERSION(VERSION);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("stand-in for tests of uncork, not the NVIDIA driver");
