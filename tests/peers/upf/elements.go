package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/wmnsk/go-pfcp/ie"
)

// element is one information element type (TS 29.244, 8.2): its name, how its value is decoded and encoded again by
// go-pfcp, and how many of its first octets say which form it has. A grouped IE has no value of its own.
type element struct {
	name   string
	encode func(*ie.IE) (*ie.IE, error)
	form   int
}

// again reads a value by go-pfcp's typed accessor and builds the IE anew from it.
func again[T any](read func(*ie.IE) (T, error), build func(T) *ie.IE) func(*ie.IE) (*ie.IE, error) {
	return func(received *ie.IE) (*ie.IE, error) {
		value, err := read(received)
		if err != nil {
			return nil, err
		}
		return build(value), nil
	}
}

// fields does the same for a value that go-pfcp holds in a struct.
func fields[T interface{ Marshal() ([]byte, error) }](read func(*ie.IE) (T, error)) func(*ie.IE) (*ie.IE, error) {
	return func(received *ie.IE) (*ie.IE, error) {
		value, err := read(received)
		if err != nil {
			return nil, err
		}
		payload, err := value.Marshal()
		return ie.New(received.Type, payload), err
	}
}

// pair does the same for a value of two numbers, uplink and downlink.
func pair[T any](up, down func(*ie.IE) (T, error), build func(T, T) *ie.IE) func(*ie.IE) (*ie.IE, error) {
	return func(received *ie.IE) (*ie.IE, error) {
		uplink, err := up(received)
		if err != nil {
			return nil, err
		}
		downlink, err := down(received)
		return build(uplink, downlink), err
	}
}

// atMost is again with an upper limit of the value.
func atMost(largest uint8, read func(*ie.IE) (uint8, error), build func(uint8) *ie.IE) func(*ie.IE) (*ie.IE, error) {
	return func(received *ie.IE) (*ie.IE, error) {
		value, err := read(received)
		if err == nil && value > largest {
			err = fmt.Errorf("value %d, at most %d is defined", value, largest)
		}
		return build(value), err
	}
}

// gates takes open (0) and closed (1) only: 2 and 3 shall not be sent.
func gates(received *ie.IE) (*ie.IE, error) {
	value, err := received.GateStatus()
	if err == nil && value&0b1010 != 0 {
		err = errors.New("a gate is neither open nor closed")
	}
	if err != nil {
		return nil, err
	}
	return pair((*ie.IE).GateStatusUL, (*ie.IE).GateStatusDL, ie.NewGateStatus)(received)
}

func methods(received *ie.IE) (*ie.IE, error) {
	number := map[bool]int{true: 1}
	event, volume, duration := number[received.HasEVENT()], number[received.HasVOLUM()], number[received.HasDURAT()]
	return ie.NewMeasurementMethod(event, volume, duration), nil
}

func applyAction(received *ie.IE) (*ie.IE, error) {
	if _, err := received.ApplyAction(); err != nil {
		return nil, err
	}
	return ie.New(received.Type, received.Payload), received.ValidateApplyAction()
}

// networkInstance takes the two forms that are in use: labels, each behind its length, and the text as it is.
func networkInstance(received *ie.IE) (*ie.IE, error) {
	name, err := received.NetworkInstanceFQDN()
	if err != nil {
		return nil, err
	}
	if labels := ie.NewNetworkInstanceFQDN(name); bytes.Equal(labels.Payload, received.Payload) {
		return labels, nil
	}
	text, err := received.NetworkInstance()
	for _, letter := range text {
		if letter <= ' ' || letter > '~' {
			return nil, fmt.Errorf("neither labels nor text: %q", text)
		}
	}
	return ie.NewNetworkInstance(text), err
}

var elements = map[uint16]element{
	ie.CreatePDR:                  {name: "Create PDR"},
	ie.PDI:                        {name: "PDI"},
	ie.CreateFAR:                  {name: "Create FAR"},
	ie.ForwardingParameters:       {name: "Forwarding Parameters"},
	ie.CreateURR:                  {name: "Create URR"},
	ie.CreateQER:                  {name: "Create QER"},
	ie.CreateBAR:                  {name: "Create BAR"},
	ie.UpdateFAR:                  {name: "Update FAR"},
	ie.UpdateForwardingParameters: {name: "Update Forwarding Parameters"},
	ie.QueryURR:                   {name: "Query URR"},
	ie.Cause:                      {"Cause", again((*ie.IE).Cause, ie.NewCause), 1},
	ie.SourceInterface: {
		"Source Interface", atMost(4, (*ie.IE).SourceInterface, ie.NewSourceInterface), 1,
	},
	ie.DestinationInterface: {
		"Destination Interface", atMost(5, (*ie.IE).DestinationInterface, ie.NewDestinationInterface), 1,
	},
	ie.FTEID:           {"F-TEID", fields((*ie.IE).FTEID), 1},
	ie.NetworkInstance: {"Network Instance", networkInstance, 1},
	ie.SDFFilter:       {"SDF Filter", fields((*ie.IE).SDFFilter), 1},
	ie.GateStatus: {
		"Gate Status", gates, 1,
	},
	ie.MBR:             {"MBR", pair((*ie.IE).MBRUL, (*ie.IE).MBRDL, ie.NewMBR), 0},
	ie.GBR:             {"GBR", pair((*ie.IE).GBRUL, (*ie.IE).GBRDL, ie.NewGBR), 0},
	ie.Precedence:      {"Precedence", again((*ie.IE).Precedence, ie.NewPrecedence), 0},
	ie.VolumeThreshold: {"Volume Threshold", fields((*ie.IE).VolumeThreshold), 1},
	ie.ReportingTriggers: {
		"Reporting Triggers", again((*ie.IE).ReportingTriggers, octets(ie.NewReportingTriggers)), 3,
	},
	ie.ApplyAction: {"Apply Action", applyAction, 2},
	ie.DownlinkDataNotificationDelay: {
		"Downlink Data Notification Delay",
		again((*ie.IE).DownlinkDataNotificationDelay, ie.NewDownlinkDataNotificationDelay), 0,
	},
	ie.PFCPSMReqFlags: {
		"PFCPSMReq-Flags", atMost(7, (*ie.IE).PFCPSMReqFlags, ie.NewPFCPSMReqFlags), 1,
	},
	ie.PDRID:             {"PDR ID", again((*ie.IE).PDRID, ie.NewPDRID), 0},
	ie.FSEID:             {"F-SEID", fields((*ie.IE).FSEID), 1},
	ie.NodeID:            {"Node ID", again((*ie.IE).NodeID, ie.NewNodeIDHeuristic), 1},
	ie.MeasurementMethod: {"Measurement Method", methods, 1},
	ie.MeasurementPeriod: {
		"Measurement Period", again((*ie.IE).MeasurementPeriod, ie.NewMeasurementPeriod), 0,
	},
	ie.TimeThreshold: {
		"Time Threshold", again((*ie.IE).TimeThreshold, ie.NewTimeThreshold), 0,
	},
	ie.UserPlaneInactivityTimer: {
		"User Plane Inactivity Timer", again((*ie.IE).UserPlaneInactivityTimer, ie.NewUserPlaneInactivityTimer), 0,
	},
	ie.URRID:               {"URR ID", again((*ie.IE).URRID, ie.NewURRID), 0},
	ie.OuterHeaderCreation: {"Outer Header Creation", fields((*ie.IE).OuterHeaderCreation), 2},
	ie.BARID:               {"BAR ID", again((*ie.IE).BARID, ie.NewBARID), 0},
	ie.OuterHeaderRemoval: {
		"Outer Header Removal", again((*ie.IE).OuterHeaderRemoval, octets(newOuterHeaderRemoval)), 2,
	},
	ie.RecoveryTimeStamp: {
		"Recovery Time Stamp", again((*ie.IE).RecoveryTimeStamp, ie.NewRecoveryTimeStamp), 0,
	},
	ie.ActivatePredefinedRules: {
		"Activate Predefined Rules", again((*ie.IE).ActivatePredefinedRules, ie.NewActivatePredefinedRules), 0,
	},
	ie.FARID:   {"FAR ID", again((*ie.IE).FARID, ie.NewFARID), 0},
	ie.QERID:   {"QER ID", again((*ie.IE).QERID, ie.NewQERID), 0},
	ie.PDNType: {"PDN Type", atMost(5, (*ie.IE).PDNType, ie.NewPDNType), 1},
	ie.QFI:     {"QFI", atMost(63, (*ie.IE).QFI, ie.NewQFI), 0},
	ie.SuggestedBufferingPacketsCount: {"Suggested Buffering Packets Count",
		again((*ie.IE).SuggestedBufferingPacketsCount, ie.NewSuggestedBufferingPacketsCount), 0},
	ie.UEIPAddress:       {"UE IP Address", fields((*ie.IE).UEIPAddress), 1},
	ie.APNDNN:            {"APN/DNN", again((*ie.IE).APNDNN, ie.NewAPNDNN), 0},
	ie.TGPPInterfaceType: {"3GPP Interface Type", atMost(25, (*ie.IE).TGPPInterfaceType, ie.NewTGPPInterfaceType), 1},
}

// lengths are those that differ from release to release: before Release 16, and from it on. Outer Header Removal is
// longer since 15.4.0.
var lengths = map[uint16][2]int{
	ie.ApplyAction:        {1, 2},
	ie.ReportingTriggers:  {2, 3},
	ie.OuterHeaderRemoval: {1, 2},
}

// newOuterHeaderRemoval takes one octet too, as go-pfcp's own does not.
func newOuterHeaderRemoval(all ...uint8) *ie.IE {
	return ie.New(ie.OuterHeaderRemoval, all)
}

func octets(build func(...uint8) *ie.IE) func([]byte) *ie.IE {
	return func(all []byte) *ie.IE { return build(all...) }
}

func nameOf(kind uint16) string {
	if known, ok := elements[kind]; ok {
		return known.name
	}
	return fmt.Sprintf("IE %d", kind)
}
