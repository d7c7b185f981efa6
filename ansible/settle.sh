# What an interrupted Ansible left going or half done on a host comes to its end first. The first words of both
# playbooks, as raw: there may be no Python yet. $folder is where the environment is.
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
# It is there only from before packages come until it is noted which.
if [ -e /etc/pktswarm/packages-before ]; then
  tries=0
  # While another has dpkg's lock, this fails.
  until DEBIAN_FRONTEND=noninteractive dpkg --configure -a >/dev/null 2>&1 || [ "$tries" -ge 60 ]; do
    tries=$((tries + 1))
    sleep 5
  done
fi
