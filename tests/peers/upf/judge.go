package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

const mostFindings = 200

// finding is one thing in a message that is not as TS 29.244 has it, or that go-pfcp does not understand.
type finding struct {
	Message string `json:"message"`
	At      string `json:"at"`
	Problem string `json:"problem"`
}

// judge counts what was received and keeps what is wrong in it.
type judge struct {
	Messages map[string]int            `json:"messages"`
	Elements map[string]int            `json:"elements"`
	Forms    map[string]map[string]int `json:"forms"` // by the IE's name: its first octets, in hexadecimal
	Findings []finding                 `json:"findings"`
	Sessions int                       `json:"sessions"` // still there at the end
	release  int
	current  string
}

func newJudge(release int) *judge {
	return &judge{
		Messages: map[string]int{}, Elements: map[string]int{}, Forms: map[string]map[string]int{},
		Findings: []finding{}, release: release,
	}
}

func (j *judge) find(at, format string, values ...any) {
	if len(j.Findings) < mostFindings {
		j.Findings = append(j.Findings, finding{j.current, at, fmt.Sprintf(format, values...)})
	}
}

// message decodes a datagram strictly; nil where it cannot be decoded at all.
func (j *judge) message(datagram []byte) (header *message.Header, ies []*ie.IE) {
	j.current = "message"
	defer func() {
		if problem := recover(); problem != nil {
			j.find("", "go-pfcp panics: %v, at %s", problem, hex.EncodeToString(datagram))
			header, ies = nil, nil
		}
	}()
	parsed, err := message.Parse(datagram)
	if err != nil {
		j.find("", "go-pfcp cannot decode it: %v: %s", err, hex.EncodeToString(datagram))
		return nil, nil
	}
	allowed, known := messages[parsed.MessageType()]
	if !known {
		j.find("", "message type %d is not one that an SMF sends to a UPF", parsed.MessageType())
		return nil, nil
	}
	j.current = allowed.name
	j.Messages[j.current]++
	header, err = message.ParseHeader(datagram)
	if err == nil {
		ies, err = ie.ParseMultiIEs(header.Payload)
	}
	if err != nil {
		j.find("", "go-pfcp cannot decode it: %v", err)
		return nil, nil
	}
	j.header(header, len(datagram))
	for _, left := range unknownTo(parsed) {
		j.find(nameOf(left.Type), "go-pfcp knows no such IE in this message")
	}
	j.group("", allowed, ies)
	return header, ies
}

func (j *judge) header(header *message.Header, length int) {
	if version := header.Flags >> 5; version != 1 {
		j.find("header", "version %d, 1 is expected", version)
	}
	if header.Flags&0b11000 != 0 {
		j.find("header", "spare bits are set: flags %#02x", header.Flags)
	}
	if int(header.Length) != length-4 {
		j.find("header", "length %d, but %d octets follow", header.Length, length-4)
	}
	if of := header.Type >= message.MsgTypeSessionEstablishmentRequest; of != header.HasSEID() {
		j.find("header", "SEID present: %t, session related: %t", header.HasSEID(), of)
	}
	if header.Flags&0b10 == 0 && header.MessagePriority != 0 {
		j.find("header", "spare octet is %#02x", header.MessagePriority)
	}
}

// unknownTo returns what go-pfcp's decoder of this message type put aside.
func unknownTo(parsed message.Message) []*ie.IE {
	left, _ := reflect.ValueOf(parsed).Elem().FieldByName("IEs").Interface().([]*ie.IE)
	return left
}

func (j *judge) group(at string, allowed table, ies []*ie.IE) {
	seen := map[uint16]int{}
	for _, one := range ies {
		name := nameOf(one.Type)
		place := name
		if at != "" {
			place = at + "/" + name
		}
		seen[one.Type]++
		j.Elements[name]++
		if _, known := elements[one.Type]; !known {
			j.find(place, "unknown IE type %d", one.Type)
			continue
		}
		if !allowed.allows(one.Type) {
			j.find(place, "no such IE here")
		}
		if seen[one.Type] == 2 && !has(allowed.repeated, one.Type) {
			j.find(place, "more than one")
		}
		j.element(place, one)
	}
	for _, kind := range allowed.mandatory {
		if seen[kind] == 0 {
			j.find(at, "mandatory IE missing: %s", nameOf(kind))
		}
	}
	action := first(ies, ie.ApplyAction)
	if at == "Create FAR" && action != nil && action.HasFORW() && seen[ie.ForwardingParameters] == 0 {
		j.find(at, "FORW without Forwarding Parameters")
	}
}

func (j *judge) element(place string, received *ie.IE) {
	known := elements[received.Type]
	if received.MarshalLen() != 4+int(received.Length) {
		j.find(place, "length %d, but its value has %d octets", received.Length, received.MarshalLen()-4)
		return
	}
	if received.IsGrouped() {
		j.group(place, groups[received.Type], received.ChildIEs)
		return
	}
	if known.form > 0 && len(received.Payload) > 0 {
		j.form(known, received.Payload)
	}
	built, err := known.encode(received)
	if err != nil {
		j.find(place, "its value %x does not decode: %v", received.Payload, err)
		return
	}
	if !bytes.Equal(built.Payload, received.Payload) {
		j.find(place, "its value %x is %x when go-pfcp encodes it", received.Payload, built.Payload)
	}
	if length, differs := lengths[received.Type]; differs {
		expected := length[0]
		if j.release >= 16 {
			expected = length[1]
		}
		if len(received.Payload) != expected {
			j.find(place, "%d octets, Release %d has %d", len(received.Payload), j.release, expected)
		}
	}
}

func (j *judge) form(known element, payload []byte) {
	if j.Forms[known.name] == nil {
		j.Forms[known.name] = map[string]int{}
	}
	if known.form < len(payload) {
		payload = payload[:known.form]
	}
	j.Forms[known.name][hex.EncodeToString(payload)]++
}

func first(ies []*ie.IE, kind uint16) *ie.IE {
	for _, one := range ies {
		if one.Type == kind {
			return one
		}
	}
	return nil
}
