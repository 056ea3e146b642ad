for i in 1 2 3 4 5; do 
last=$(date +%s)
while now=$(date +%s); [ "$now" = "$last" ]; do :; done
echo "<5>UPTIME $(cut -d' ' -f1 /proc/uptime) edge $now" >/dev/kmsg; 
sleep 0.5; done
