package main

import (
	"net"

	"github.com/wmnsk/go-pfcp/ie"
)

// session is what this UPF keeps of a PFCP session: the SMF's SEID, and which rules there are.
type session struct {
	smf   uint64
	rules map[rule]bool
}

type rule struct {
	numbered uint16 // the type of the IE with its number
	number   string
}

// create takes in the rules of an establishment, and reports numbers that stand twice or for nothing.
func (s *session) create(j *judge, ies []*ie.IE) {
	for _, one := range ies {
		numbered, creates := rules[one.Type]
		if !creates {
			continue
		}
		if number := first(one.ChildIEs, numbered); number != nil {
			made := rule{numbered, string(number.Payload)}
			if s.rules[made] {
				j.find(nameOf(one.Type), "its %s %x is taken", nameOf(numbered), number.Payload)
			}
			s.rules[made] = true
		}
	}
	s.references(j, ies)
}

// references reports every rule that is named and does not exist.
func (s *session) references(j *judge, ies []*ie.IE) {
	for _, group := range ies {
		for _, one := range group.ChildIEs {
			switch one.Type {
			case ie.PDRID, ie.FARID, ie.URRID, ie.QERID, ie.BARID:
				if !s.rules[rule{one.Type, string(one.Payload)}] {
					j.find(nameOf(group.Type), "no rule has %s %x", nameOf(one.Type), one.Payload)
				}
			}
		}
	}
}

// created answers a PDR that asks for an address or a tunnel with the ones chosen; nil where it asks for none.
func created(pdr *ie.IE, number uint32, n3 net.IP) *ie.IE {
	pdi := first(pdr.ChildIEs, ie.PDI)
	if pdi == nil {
		return nil
	}
	chosen := []*ie.IE{first(pdr.ChildIEs, ie.PDRID)}
	if tunnel := first(pdi.ChildIEs, ie.FTEID); tunnel != nil {
		if asked, err := tunnel.FTEID(); err == nil && asked.HasCh() {
			chosen = append(chosen, fTEID(asked, number, n3))
		}
	}
	if address := first(pdi.ChildIEs, ie.UEIPAddress); address != nil && len(address.Payload) == 1 {
		chosen = append(chosen, ueAddress(address.Payload[0], number))
	}
	if len(chosen) < 2 {
		return nil
	}
	return ie.NewCreatedPDR(chosen...)
}

func fTEID(asked *ie.FTEIDFields, number uint32, n3 net.IP) *ie.IE {
	if asked.HasIPv6() {
		return ie.NewFTEID(0x02, 0xABC00000+number, nil, net.ParseIP("2001:db8:3::1"), 0)
	}
	return ie.NewFTEID(0x01, 0xABC00000+number, n3, nil, 0)
}

// ueAddress chooses by the flags CHV4 (0x10) and CHV6 (0x20): S/D is set as it was asked for.
func ueAddress(flags uint8, number uint32) *ie.IE {
	v4 := net.IPv4(10, 60, byte(number>>8), byte(number)).String()
	v6 := net.IP{0x20, 0x01, 0x0d, 0xb8, 0x60, 0, byte(number >> 8), byte(number), 0, 0, 0, 0, 0, 0, 0, 1}.String()
	return ie.NewUEIPAddress(flags&0x04|flags>>3&0x02|flags>>5&0x01, v4, v6, 0, 0)
}
