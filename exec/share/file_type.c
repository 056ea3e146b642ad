// SPDX-License-Identifier: MIT
/*
 * What is a file of the host's, and how the guest sees it. Some file systems hold no files but are
 * an interface of the host's kernel: procfs has the memory of processes, sysfs and its kin have
 * switches. A guest has its own of each. The server decides by the type of the file system that an
 * open descriptor is on, wherever that is mounted, and by a list of those that store files: a type
 * that a later kernel adds is refused until it has a row here. A folder of a refused type is an
 * empty one, so that the guest can mount its own there.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "exec/share/share.h"

/* f_type of statfs(2); linux/magic.h and the sources of each file system. */
static const u32 stores_files[] = {
	/* disks */
	0x0000ef53, /* ext2, ext3, ext4 */
	0x58465342, /* xfs */
	0x9123683e, /* btrfs */
	0xca451a4e, /* bcachefs */
	0xf2f52010, /* f2fs */
	0x2fc12fc1, /* zfs */
	0x52654973, /* reiserfs */
	0x3153464a, /* jfs */
	0x00003434, /* nilfs2 */
	0x00004d44, /* vfat */
	0x2011bab0, /* exfat */
	0x5346544e, /* ntfs */
	0x7366746e, /* ntfs3 */
	0x0000482b, /* hfs+ */
	0x00004244, /* hfs */
	0x42535041, /* apfs */
	0x00009660, /* iso9660 */
	0x15013346, /* udf */
	0x00011954, /* ufs */
	0x0000137f, /* minix, version 1, names of 14 bytes */
	0x0000138f, /* minix, version 1, names of 30 bytes */
	0x00002468, /* minix, version 2, names of 14 bytes */
	0x00002478, /* minix, version 2, names of 30 bytes */
	0x00004d5a, /* minix, version 3 */
	/* images and flash */
	0x73717368, /* squashfs */
	0xe0f5e1e2, /* erofs */
	0x28cd3d45, /* cramfs */
	0x00007275, /* romfs */
	0x000072b6, /* jffs2 */
	0x24051905, /* ubifs */
	/* memory: devtmpfs, too, is one of these, and its nodes are refused as devices */
	0x01021994, /* tmpfs */
	0x858458f6, /* ramfs */
	/* networks and clusters */
	0x00006969, /* nfs */
	0xff534d42, /* cifs */
	0xfe534d42, /* smb2 */
	0x01021997, /* 9p */
	0x00c36400, /* ceph */
	0x6b414653, /* afs */
	0x5346414f, /* openafs */
	0x73757245, /* coda */
	0x7461636f, /* ocfs2 */
	0x01161970, /* gfs2 */
	0x20030528, /* orangefs */
	0x0bd00bd0, /* lustre */
	0x47504653, /* gpfs */
	0x19830326, /* beegfs */
	/* over others */
	0x794c7630, /* overlay */
	0x61756673, /* aufs */
	0x0000f15f, /* ecryptfs */
	0x65735546, /* fuse, virtiofs */
	0x786f4256, /* vboxsf */
	0xbacbacbc, /* vmhgfs */
	0x00000187, /* autofs: folders only, on the way to others */
};

bool share_serves(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return false;
	for (u32 i = 0; i < ARRAY_SIZE(stores_files); i++)
		if ((u32)fs.f_type == stores_files[i])
			return true;
	return false;
}

/* An empty folder, or a file that cannot be opened. */
static void seal(struct stat *st)
{
	st->st_mode = S_ISDIR(st->st_mode) ? S_IFDIR | 0555 : st->st_mode & S_IFMT;
	st->st_nlink = S_ISDIR(st->st_mode) ? 2 : 1;
	st->st_uid = st->st_gid = 0;
	st->st_size = st->st_blocks = 0;
	st->st_atim = st->st_mtim = st->st_ctim = (struct timespec){ 0 };
}

int share_stat(int fd, struct stat *st)
{
	if (fstatat(fd, "", st, AT_EMPTY_PATH))
		return errno;
	st->st_mode &= ~SET_ID;
	if (!share_serves(fd))
		seal(st);
	return 0;
}

/* An entry on the device of its folder is on the folder's file system. The folder is open, so no
 * other one can be mounted by that device number meanwhile. */
int share_stat_entry(int folder, const char *name, struct stat *st)
{
	struct stat above;
	int fd, error;

	if (fstat(folder, &above) || fstatat(folder, name, st, AT_SYMLINK_NOFOLLOW))
		return errno;
	st->st_mode &= ~SET_ID;
	if (st->st_dev == above.st_dev)
		return 0;
	fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno;
	error = share_stat(fd, st);
	close(fd);
	return error;
}

int share_open_regular(int path, int flags)
{
	struct stat st;
	int fd;

	if (path < 0)
		return -errno;
	if (fstatat(path, "", &st, AT_EMPTY_PATH) || !S_ISREG(st.st_mode) || !share_serves(path))
		fd = -EACCES;
	else
		fd = share_reopen(path, flags);
	close(path);
	return fd;
}
