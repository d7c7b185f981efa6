"""UP Function Features (TS 29.244, table 8.2.25-1) by their names, in the order of their bits."""

from __future__ import annotations

NAMES = (
    "BUCP DDND DLBD TRST FTUP PFDM HEEU TREU "
    "EMPU PDIU UDBC QUOAC TRACE FRRT PFDE EPFAR "
    "DPDRA ADPDP UEIP SSET MNOP MTE BUNDL GCOM "
    "MPAS RTTL VTIME NORP IPTV IP6PL TSCU MPTCP "
    "ATSSS-LL QFQM GPQM MT-EDT CIOT ETHAR DDDS RDS "
    "RTTWP QUASF NSPOC L2TP UPBER RESPS IPREP DNSTS "
    "DRQOS MBSN4 PSUPRM EPPI RATP"
).split()


def names(octets: bytes) -> list[str]:
    """The features that are set; a bit without a name here as "octet.bit"."""
    found = []
    for number in range(8 * len(octets)):
        octet, bit = divmod(number, 8)
        if octets[octet] >> bit & 1:
            found.append(NAMES[number] if number < len(NAMES) else f"{octet + 5}.{bit + 1}")
    return found
