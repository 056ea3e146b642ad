# stress-ng of the host's file system, mounted read-only over virtiofs, with its verification on.
modprobe -a virtio_pci virtiofs
mount -t virtiofs -o ro host /mnt || exit 1
mount -t tmpfs tmp /mnt/tmp
mount -t proc proc /mnt/proc
mount --bind /dev /mnt/dev
mkdir -p /mnt/dev/shm
mount -t tmpfs shm /mnt/dev/shm
chroot /mnt /usr/bin/stress-ng --cpu 2 --vm 2 --vm-bytes 64M --fork 2 --pipe 2 --switch 2 --verify \
	--temp-path /tmp --timeout "${seconds:-60}" --metrics-brief
