/* A stand-in for nvidia-peermem: needs the driver and the RDMA core, as the real one does. */
#include <linux/module.h>
#include <rdma/ib_verbs.h>

extern int nvidia_standin_users;

static struct workqueue_struct **core = &ib_wq; /* a symbol of ib_core: makes it a dependency */

static int __init start(void)
{
	nvidia_standin_users += *core != NULL;
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
