package main

import (
	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// table is what one message or grouped IE may contain: of the specification's tables, the part that an SMF without
// special features sends.
type table struct {
	name                string // of a message
	mandatory, optional []uint16
	repeated            []uint16 // of both: those that may be there more than once
}

// messages by TS 29.244, 7.4 (node related) and 7.5 (session related), as the SMF sends them.
var messages = map[uint8]table{
	message.MsgTypeHeartbeatRequest: {
		name: "Heartbeat Request", mandatory: []uint16{ie.RecoveryTimeStamp}, optional: []uint16{ie.SourceIPAddress},
	},
	message.MsgTypeHeartbeatResponse: {name: "Heartbeat Response", mandatory: []uint16{ie.RecoveryTimeStamp}},
	message.MsgTypeAssociationSetupRequest: {
		name: "Association Setup Request", mandatory: []uint16{ie.NodeID, ie.RecoveryTimeStamp},
	},
	message.MsgTypeAssociationSetupResponse: {
		name: "Association Setup Response", mandatory: []uint16{ie.NodeID, ie.Cause, ie.RecoveryTimeStamp},
	},
	message.MsgTypeAssociationUpdateRequest: {name: "Association Update Request", mandatory: []uint16{ie.NodeID}},
	message.MsgTypeAssociationUpdateResponse: {
		name: "Association Update Response", mandatory: []uint16{ie.NodeID, ie.Cause},
	},
	message.MsgTypeAssociationReleaseRequest: {name: "Association Release Request", mandatory: []uint16{ie.NodeID}},
	message.MsgTypeNodeReportResponse:        {name: "Node Report Response", mandatory: []uint16{ie.NodeID, ie.Cause}},
	message.MsgTypeSessionEstablishmentRequest: {
		name:      "Session Establishment Request",
		mandatory: []uint16{ie.NodeID, ie.FSEID, ie.CreatePDR, ie.CreateFAR},
		optional: []uint16{
			ie.CreateURR, ie.CreateQER, ie.CreateBAR, ie.PDNType, ie.APNDNN, ie.UserPlaneInactivityTimer,
		},
		repeated: []uint16{ie.CreatePDR, ie.CreateFAR, ie.CreateURR, ie.CreateQER},
	},
	message.MsgTypeSessionModificationRequest: {
		name:     "Session Modification Request",
		optional: []uint16{ie.UpdateFAR, ie.QueryURR, ie.PFCPSMReqFlags},
		repeated: []uint16{ie.UpdateFAR, ie.QueryURR},
	},
	message.MsgTypeSessionDeletionRequest: {name: "Session Deletion Request"},
	message.MsgTypeSessionReportResponse:  {name: "Session Report Response", mandatory: []uint16{ie.Cause}},
}

// groups by TS 29.244, 7.5.2 to 7.5.4.
var groups = map[uint16]table{
	ie.CreatePDR: {
		mandatory: []uint16{ie.PDRID, ie.Precedence, ie.PDI},
		optional:  []uint16{ie.OuterHeaderRemoval, ie.FARID, ie.URRID, ie.QERID, ie.ActivatePredefinedRules},
		repeated:  []uint16{ie.URRID, ie.QERID, ie.ActivatePredefinedRules},
	},
	ie.PDI: {
		mandatory: []uint16{ie.SourceInterface},
		optional:  []uint16{ie.FTEID, ie.NetworkInstance, ie.UEIPAddress, ie.SDFFilter, ie.TGPPInterfaceType},
		repeated:  []uint16{ie.UEIPAddress, ie.SDFFilter},
	},
	ie.CreateFAR: {
		mandatory: []uint16{ie.FARID, ie.ApplyAction},
		optional:  []uint16{ie.ForwardingParameters, ie.BARID},
	},
	ie.ForwardingParameters: {
		mandatory: []uint16{ie.DestinationInterface},
		optional:  []uint16{ie.NetworkInstance, ie.OuterHeaderCreation, ie.TGPPInterfaceType},
	},
	ie.CreateURR: {
		mandatory: []uint16{ie.URRID, ie.MeasurementMethod, ie.ReportingTriggers},
		optional:  []uint16{ie.MeasurementPeriod, ie.VolumeThreshold, ie.TimeThreshold},
	},
	ie.CreateQER: {
		mandatory: []uint16{ie.QERID, ie.GateStatus},
		optional:  []uint16{ie.MBR, ie.GBR, ie.QFI},
	},
	ie.CreateBAR: {
		mandatory: []uint16{ie.BARID},
		optional:  []uint16{ie.DownlinkDataNotificationDelay, ie.SuggestedBufferingPacketsCount},
	},
	ie.UpdateFAR: {
		mandatory: []uint16{ie.FARID},
		optional:  []uint16{ie.ApplyAction, ie.UpdateForwardingParameters, ie.BARID},
	},
	ie.UpdateForwardingParameters: {
		optional: []uint16{ie.DestinationInterface, ie.NetworkInstance, ie.OuterHeaderCreation, ie.PFCPSMReqFlags,
			ie.TGPPInterfaceType},
	},
	ie.QueryURR: {mandatory: []uint16{ie.URRID}},
}

// rules are the grouped IEs that create a rule, with the IE that numbers it. Wherever else such a number stands, the
// session has the rule.
var rules = map[uint16]uint16{
	ie.CreatePDR: ie.PDRID,
	ie.CreateFAR: ie.FARID,
	ie.CreateURR: ie.URRID,
	ie.CreateQER: ie.QERID,
	ie.CreateBAR: ie.BARID,
}

func (t table) allows(kind uint16) bool {
	return has(t.mandatory, kind) || has(t.optional, kind)
}

func has(kinds []uint16, kind uint16) bool {
	for _, known := range kinds {
		if known == kind {
			return true
		}
	}
	return false
}
