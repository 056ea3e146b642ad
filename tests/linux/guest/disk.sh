# SPDX-License-Identifier: MIT
# The first boot writes a file to an ext4 disk and restarts the machine; the second compares it with its checksum.
modprobe -a virtio_pci virtio_mmio virtio_blk ext4
mount -t ext4 /dev/vda /mnt || exit 1
if [ ! -e /mnt/sums ]; then
	dd if=/dev/urandom of=/mnt/data bs=1M count="${megabytes:-200}" 2>/dev/null || exit 1
	(cd /mnt && md5sum data >sums) || exit 1
	sync
	umount /mnt || exit 1
	touch /tmp/restart
	exit 0
fi
echo "second boot: comparing"
(cd /mnt && md5sum -c sums) || exit 1
umount /mnt
