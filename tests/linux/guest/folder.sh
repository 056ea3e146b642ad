# SPDX-License-Identifier: MIT
# A folder of the host over virtiofs: read what the host wrote, write for the host, and file system operations between.
modprobe -a virtio_pci virtiofs
mount -t virtiofs host /mnt || exit 1
cd /mnt || exit 1
md5sum -c sums || exit 1
dd if=/dev/urandom of=from-guest bs=1M count=20 2>/dev/null || exit 1
md5sum from-guest >sums-guest || exit 1
mkdir d && mv sums-guest d/renamed && ln -s d/renamed link && chmod 600 link || exit 1
[ "$(stat -c %a d/renamed)" = 600 ] || exit 1
for i in $(seq 100); do
	echo "$i" >"d/file$i"
done
[ "$(ls d | wc -l)" = 101 ] || exit 1
rm d/file*
