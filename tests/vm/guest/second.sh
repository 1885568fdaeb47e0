# The guest's second stage, in the host's own userland: the file systems and modules of a booted system.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mkdir -p /dev/pts /dev/shm /tmp
mount -t devpts devpts /dev/pts
mount -t tmpfs -o nosuid,nodev,size=256M shm /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t securityfs securityfs /sys/kernel/security
mount -t debugfs debugfs /sys/kernel/debug
hostname uncork-vm
ip link set lo up
rm -f /.dockerenv                     # the host's; what runs here is no container
mkdir -p "/lib/modules/$(uname -r)"
mount --bind "$(cat /run/lab/modules)" "/lib/modules/$(uname -r)"
modprobe acpi-cpufreq
python=$(cat /run/lab/python)
if grep -q lab.systemd=1 /proc/cmdline; then
    # systemd as the first process, as on a server, with this agent as its only service.
    printf '[Unit]\nRequires=lab.service\n' > /etc/systemd/system/lab.target
    printf '[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=%s /run/lab/agent.py\nRestart=always\n' "$python" \
        > /etc/systemd/system/lab.service
    exec /lib/systemd/systemd --unit=lab.target
fi
while :; do "$python" /run/lab/agent.py; sleep 1; done
