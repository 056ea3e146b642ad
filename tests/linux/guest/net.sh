# Sends random bytes to the host over TCP and then their checksum; receives as many and sends the checksum of what came.
modprobe -a virtio_pci virtio_mmio virtio_net
ip link set eth0 up || exit 1
ip addr add 10.0.2.15/24 dev eth0
mkfifo /tmp/copy
md5sum </tmp/copy >/tmp/sent &
dd if=/dev/urandom bs=1M count="${megabytes:-500}" 2>/dev/null | tee /tmp/copy | nc 10.0.2.2 "$port" || exit 1
wait
nc 10.0.2.2 "$port" </dev/null | md5sum >/tmp/received || exit 1
cat /tmp/sent /tmp/received | nc 10.0.2.2 "$port"
