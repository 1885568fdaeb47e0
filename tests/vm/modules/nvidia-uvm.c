/* A stand-in for nvidia-uvm: loads on top of the stand-in driver. */
#include <linux/module.h>

extern int nvidia_standin_users;

static int __init start(void)
{
	nvidia_standin_users++;
	return 0;
}

static void __exit end(void)
{
	nvidia_standin_users--;
}

module_init(start);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("stand-in for tests of uncork, not the NVIDIA driver");
