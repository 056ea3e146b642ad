# SPDX-License-Identifier: MIT
# Counts on the console until the host has done what it wants to do with the machine, and says so: the word "enough".
# Checks on the way that time goes forward and memory keeps its content. The word "count" has a program's instructions
# and branches counted. With a variable "vectors" another program holds patterns in all vector registers meanwhile.
if [ -n "$symbols" ]; then
	awk '$3 == "__x64_sys_openat" || $3 == "jiffies" { print "symbol", $3, $1 }' /proc/kallsyms
fi
dd if=/dev/urandom of=/tmp/block bs=1M count=4 2>/dev/null
sum=$(md5sum </tmp/block)
(
	while read -r word; do
		case $word in
		enough) touch /tmp/enough ;;
		count) echo "counted $(/bin/count 3 /bin/work 0)" ;;
		esac
	done
) </dev/console &
holder=
if [ -n "$vectors" ]; then
	/bin/vectors &
	holder=$!
fi
# No kernel message inside a line of this script, until it ends; with ignore_loglevel the kernel shows its messages all the same.
level=$(cut -f 1 /proc/sys/kernel/printk)
trap 'echo "$level" >/proc/sys/kernel/printk' EXIT
echo 1 >/proc/sys/kernel/printk
count=0
last=0
until [ -e /tmp/enough ]; do
	count=$((count + 1))
	echo "tick $count $(awk '/MemTotal/ { print $2, $3 }' /proc/meminfo)"
	[ "$(md5sum </tmp/block)" = "$sum" ] || exit 1
	now=$(cut -d. -f1 /proc/uptime)
	[ "$now" -ge "$last" ] || exit 1
	last=$now
	sleep 0.2
done
[ -z "$holder" ] || wait "$holder" || exit 1
