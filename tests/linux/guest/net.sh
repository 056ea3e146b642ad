# SPDX-License-Identifier: MIT
# Sends random bytes to the host over TCP, receives others from it, and tells it the checksums of both.
modprobe -a virtio_pci virtio_mmio virtio_net
ip link set eth0 up || exit 1
ip addr add 10.0.2.15/24 dev eth0
sent=$(stream send 10.0.2.2 "$port" "${megabytes:-500}") || exit 1
received=$(stream receive 10.0.2.2 "$port") || exit 1
echo "sent $sent received $received"
