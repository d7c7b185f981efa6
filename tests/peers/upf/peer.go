package main

import (
	"fmt"
	"net"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

var (
	started = time.Unix(1_700_000_000, 0)
	accept  = ie.NewCause(ie.CauseRequestAccepted)
	unknown = ie.NewCause(ie.CauseSessionContextNotFound)
)

// peer is the N4 side of a UPF.
type peer struct {
	judge       *judge
	socket      net.PacketConn
	node        *ie.IE
	address     net.IP
	asks        uint32
	sessions    map[uint64]*session
	answers     map[string]answered
	outstanding map[uint32]uint8 // of own requests: the type that their answer has
	sequence    uint32
	established uint32
}

type answered struct {
	request string
	answer  message.Message
}

func (p *peer) receive(datagram []byte, sender net.Addr) error {
	header, ies := p.judge.message(datagram)
	if header == nil {
		return nil
	}
	if header.Type%2 == 0 && header.Type < 50 || header.Type == message.MsgTypeSessionReportResponse ||
		header.Type == message.MsgTypeNodeReportResponse {
		p.take(header)
		return nil
	}
	// A request that comes again gets the same answer (TS 29.244, 6.4).
	key := fmt.Sprintf("%s %d %d", sender, header.Type, header.SequenceNumber)
	before, repeated := p.answers[key]
	if repeated && before.request != string(datagram) {
		p.judge.find("header", "sequence number %d is used again for another request", header.SequenceNumber)
		repeated = false
	}
	if !repeated {
		before = answered{string(datagram), p.answer(header, ies)}
		p.answers[key] = before
	}
	if err := p.send(before.answer, sender); err != nil || repeated {
		return err
	}
	return p.ask(header, ies, sender)
}

func (p *peer) take(header *message.Header) {
	if p.outstanding[header.SequenceNumber] != header.Type {
		p.judge.find("header", "answers no request: sequence number %d", header.SequenceNumber)
	}
	delete(p.outstanding, header.SequenceNumber)
}

func (p *peer) send(one message.Message, to net.Addr) error {
	bytes := make([]byte, one.MarshalLen())
	if err := one.MarshalTo(bytes); err != nil {
		return err
	}
	_, err := p.socket.WriteTo(bytes, to)
	return err
}

func (p *peer) answer(header *message.Header, ies []*ie.IE) message.Message {
	sequence := header.SequenceNumber
	stamp := ie.NewRecoveryTimeStamp(started)
	switch header.Type {
	case message.MsgTypeHeartbeatRequest:
		return message.NewHeartbeatResponse(sequence, stamp)
	case message.MsgTypeAssociationSetupRequest:
		features := ie.NewUPFunctionFeatures(0x10, 0, 0x04, 0) // FTUP, UEIP
		return message.NewAssociationSetupResponse(sequence, p.node, accept, stamp, features)
	case message.MsgTypeAssociationUpdateRequest:
		return message.NewAssociationUpdateResponse(sequence, p.node, accept)
	case message.MsgTypeAssociationReleaseRequest:
		return message.NewAssociationReleaseResponse(sequence, p.node, accept)
	case message.MsgTypeSessionEstablishmentRequest:
		return p.establish(header, ies)
	}
	held, cause, smf := p.sessions[header.SEID], unknown, uint64(0)
	var reports []*ie.IE
	if held == nil {
		p.judge.find("header", "no session has SEID %d", header.SEID)
	} else {
		cause, smf = accept, held.smf
		held.references(p.judge, ies)
	}
	if header.Type == message.MsgTypeSessionDeletionRequest {
		if held != nil && held.rules[rule{ie.URRID, "\x00\x00\x00\x01"}] {
			reports = append(reports, ie.NewUsageReportWithinSessionDeletionResponse(usage()...))
		}
		delete(p.sessions, header.SEID)
		return message.NewSessionDeletionResponse(0, 0, smf, sequence, 0, append(reports, cause)...)
	}
	if first(ies, ie.QueryURR) != nil {
		reports = append(reports, ie.NewUsageReportWithinSessionModificationResponse(usage()...))
	}
	return message.NewSessionModificationResponse(0, 0, smf, sequence, 0, append(reports, cause)...)
}

func (p *peer) establish(header *message.Header, ies []*ie.IE) message.Message {
	made := &session{rules: map[rule]bool{}}
	made.create(p.judge, ies)
	if header.SEID != 0 {
		p.judge.find("header", "SEID %d: the UPF's is not known yet, 0 is expected", header.SEID)
	}
	if own := first(ies, ie.FSEID); own != nil {
		if id, err := own.FSEID(); err == nil {
			made.smf = id.SEID
		}
	}
	p.established++
	number := 0x7000_0000_0000_0000 + uint64(p.established)
	p.sessions[number] = made
	told := []*ie.IE{p.node, accept, ie.NewFSEID(number, p.address.To4(), p.address.To16())}
	if p.address.To4() != nil {
		told[2] = ie.NewFSEID(number, p.address.To4(), nil)
	}
	for _, one := range ies {
		if one.Type == ie.CreatePDR {
			if chosen := created(one, p.established, net.IPv4(198, 18, 3, 1)); chosen != nil {
				told = append(told, chosen)
			}
		}
	}
	return message.NewSessionEstablishmentResponse(0, 0, made.smf, header.SequenceNumber, 0, told...)
}

// ask sends requests of the UPF's own behind the first establishments: one of each kind that an SMF answers.
func (p *peer) ask(header *message.Header, ies []*ie.IE, sender net.Addr) error {
	if p.established > p.asks || header.Type != message.MsgTypeSessionEstablishmentRequest {
		return nil
	}
	stamp, smf := ie.NewRecoveryTimeStamp(started), p.sessions[0x7000_0000_0000_0000+uint64(p.established)].smf
	gnb := ie.NewRemoteGTPUPeer(0x02, "198.51.100.9", "", 0, "")
	data := ie.NewDownlinkDataReport(ie.NewPDRID(2))
	report := ie.NewUsageReportWithinSessionReportRequest(usage()...)
	for _, one := range []message.Message{
		message.NewHeartbeatRequest(0, stamp, nil),
		message.NewAssociationSetupRequest(0, p.node, stamp),
		message.NewAssociationUpdateRequest(0, p.node),
		message.NewNodeReportRequest(0, p.node, ie.NewNodeReportType(1), ie.NewUserPlanePathFailureReport(gnb)),
		message.NewSessionReportRequest(0, 0, smf, 0, 0, ie.NewReportType(0, 0, 0, 1), data),
		message.NewSessionReportRequest(0, 0, smf, 0, 0, ie.NewReportType(0, 0, 1, 0), report),
	} {
		p.sequence++
		one.SetSequenceNumber(p.sequence)
		p.outstanding[p.sequence] = one.MessageType() + 1
		if err := p.send(one, sender); err != nil {
			return err
		}
	}
	return nil
}

func usage() []*ie.IE {
	volume := ie.NewVolumeMeasurement(0x07, 1500, 500, 1000, 0, 0, 0)
	return []*ie.IE{ie.NewURRID(1), ie.NewURSEQN(0), ie.NewUsageReportTrigger(0, 0x08, 0), volume}
}
