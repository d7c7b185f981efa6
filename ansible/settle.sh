# Finishes what an interrupted Ansible left running or incomplete on a host. First raw command of both playbooks: there may
# be no Python yet. $folder: the environment's.
pktswarm_busy() {
  for process in /proc/[0-9]*; do
    words=$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null) || continue
    case $words in *"python"*" -m venv "*"$folder"* | "$folder"*" -m pip install "*) return 0 ;; esac
  done
  return 1
}
tries=0
while [ "$tries" -lt 60 ] && pktswarm_busy; do
  tries=$((tries + 1))
  sleep 5
done
# It exists from before the installation of packages until they are recorded.
if [ -e /etc/pktswarm/packages-before ]; then
  tries=0
  # Fails while another process has dpkg's lock.
  until DEBIAN_FRONTEND=noninteractive dpkg --configure -a >/dev/null 2>&1 || [ "$tries" -ge 60 ]; do
    tries=$((tries + 1))
    sleep 5
  done
fi
