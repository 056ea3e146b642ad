# SPDX-License-Identifier: MIT
# rr records programs whose output depends on when they were interrupted, and replays them to the same output.
cd /tmp || exit 1
export _RR_TRACE_DIR=/tmp/rr HOME=/tmp
for program in threads signals; do
	rr record ./$program >recorded 2>errors || { cat errors; exit 1; }
	rr replay -a >replayed 2>errors </dev/null || { cat errors; exit 1; }
	grep -q '^history' recorded && cmp recorded replayed || { head recorded replayed errors; exit 1; }
	echo "rr: $program $(cat recorded)"
done
