# What `pktswarm provision --check` reads of a host, as lines `name=value`: it needs no Python there and changes nothing.
# $folder: the environment's; $account; $interface: of the traffic, or empty.
# shellcheck source=/dev/null
. /etc/os-release
echo "release=${VERSION_CODENAME:-${ID:-unknown}}"
if [ -e /etc/debian_version ]; then echo family=Debian; else echo "family=${ID:-unknown}"; fi
echo "machine=$(uname -m)"
echo "bits=$(getconf LONG_BIT)"
echo "installed=$(dpkg-query --show --showformat '${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p' |
  tr '\n' ' ')"
if getent passwd "$account" >/dev/null; then echo account=there; else echo account=new; fi
if [ -e "$folder" ]; then echo folder=there; else echo folder=new; fi
if [ -e /etc/pktswarm/state.json ]; then echo "state=$(tr '\n' ' ' </etc/pktswarm/state.json)"; else echo 'state={"format": 1}'; fi
# Provisioning makes a VLAN on an interface that is there.
if [ -z "$interface" ] || [ -e "/sys/class/net/$interface" ] ||
  { [ -e "/sys/class/net/${interface%.*}" ] && [ "${interface##*.}" -gt 0 ] && [ "${interface##*.}" -lt 4095 ]; } 2>/dev/null; then
  echo interface=there
else
  echo interface=missing
fi
