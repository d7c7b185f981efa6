// Command smf acts as the SMF of a UPF, by pfcpsim's package: the sessions that it sets up, moves and deletes are those
// of pfcpsim's own command line. It prints as JSON what the UPF accepted, and the first thing that it did not.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/omec-project/pfcpsim/logger"
	"github.com/omec-project/pfcpsim/pkg/pfcpsim"
	"github.com/omec-project/pfcpsim/pkg/pfcpsim/session"
	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
	"go.uber.org/zap/zapcore"
)

const (
	filter    = "permit out ip from any to assigned"
	mostRules = 10 // numbers of one session: a 16-bit FAR ID wraps behind 6,553 of them
)

type outcome struct {
	Associated  bool   `json:"associated"`
	Established int    `json:"established"`
	Heartbeats  int    `json:"heartbeats"`
	Buffering   int    `json:"buffering"`
	Moved       int    `json:"moved"`
	Deleted     int    `json:"deleted"`
	Release     uint8  `json:"release"` // the answer's cause
	Problem     string `json:"problem"`
}

type smf struct {
	*pfcpsim.PFCPClient
	n3, gnb  string
	hold     bool
	user     net.IP
	sessions []*pfcpsim.PFCPSession
	done     outcome
}

func main() {
	bind := flag.String("bind", "", "the SMF's address")
	n4 := flag.String("n4", "", "the UPF's address for PFCP")
	n3 := flag.String("n3", "", "the UPF's address for GTP-U")
	gnb := flag.String("gnb", "", "the gNB's address")
	user := flag.String("user", "10.60.0.1", "the first user's address")
	count := flag.Int("sessions", 10, "how many")
	hold := flag.Bool("hold", false, "print \"held\" while the sessions stand, and go on at a line of standard input")
	flag.Parse()
	logger.SetLogLevel(zapcore.FatalLevel)
	one := &smf{PFCPClient: pfcpsim.NewPFCPClient(*bind), n3: *n3, gnb: *gnb, hold: *hold}
	one.user = net.ParseIP(*user).To4()
	one.SetPFCPResponseTimeout(3 * time.Second)
	if err := one.life(*n4, *count); err != nil {
		one.done.Problem = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(one.done)
}

func (s *smf) life(n4 string, count int) error {
	if err := s.ConnectN4(n4); err != nil {
		return err
	}
	if err := s.SetupAssociation(); err != nil {
		return fmt.Errorf("association: %w", err)
	}
	s.done.Associated = true
	for number := 0; number < count; number++ {
		if err := s.establish(number); err != nil {
			return fmt.Errorf("establishment %d: %w", number, err)
		}
		s.done.Established++
	}
	if err := s.SendAndRecvHeartbeat(); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	s.done.Heartbeats++
	if err := s.modifyAll(session.ActionBuffer|session.ActionNotify, &s.done.Buffering); err != nil {
		return err
	}
	if err := s.modifyAll(session.ActionForward, &s.done.Moved); err != nil {
		return err
	}
	if s.hold {
		fmt.Println("held")
		_, _ = fmt.Scanln()
	}
	for number, held := range s.sessions {
		if err := s.DeleteSession(held); err != nil {
			return fmt.Errorf("deletion %d: %w", number, err)
		}
		s.done.Deleted++
	}
	return s.release()
}

// release reads the answer's cause, which pfcpsim's TeardownAssociation does not.
func (s *smf) release() error {
	if err := s.SendAssociationTeardownRequest(); err != nil {
		return err
	}
	answer, err := s.PeekNextResponse()
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if release, ok := answer.(*message.AssociationReleaseResponse); ok {
		s.done.Release, err = release.Cause.Cause()
	}
	return err
}

func (s *smf) establish(number int) error {
	up := uint32(number*mostRules + 1)
	down := up + 1
	address := net.IPv4(s.user[0], s.user[1], s.user[2]+byte(number>>8), s.user[3]+byte(number)).String()
	pdrs := []*ie.IE{
		session.NewPDRBuilder().WithID(uint16(up)).WithMethod(session.Create).WithTEID(up).WithFARID(up).
			AddQERID(0).AddQERID(up).WithN3Address(s.n3).WithSDFFilter(filter).WithPrecedence(100).MarkAsUplink().
			BuildPDR(),
		session.NewPDRBuilder().WithID(uint16(down)).WithMethod(session.Create).WithPrecedence(100).
			WithUEAddress(address).WithSDFFilter(filter).AddQERID(0).AddQERID(down).WithFARID(down).MarkAsDownlink().
			BuildPDR(),
	}
	fars := []*ie.IE{
		session.NewFARBuilder().WithID(up).WithAction(session.ActionForward).WithDstInterface(ie.DstInterfaceCore).
			WithMethod(session.Create).BuildFAR(),
		session.NewFARBuilder().WithID(down).WithAction(session.ActionDrop).WithMethod(session.Create).
			WithDstInterface(ie.DstInterfaceAccess).WithZeroBasedOuterHeaderCreation().BuildFAR(),
	}
	qers := []*ie.IE{qer(0, 0, 60000, 60000), qer(up, 9, 50000, 30000), qer(down, 9, 50000, 30000)}
	made, err := s.EstablishSession(pdrs, fars, qers, urrs(up, down))
	if err == nil {
		s.sessions = append(s.sessions, made)
	}
	return err
}

func qer(id uint32, qfi uint8, up, down uint64) *ie.IE {
	return session.NewQERBuilder().WithID(id).WithMethod(session.Create).WithQFI(qfi).WithUplinkMBR(up).
		WithDownlinkMBR(down).Build()
}

func urrs(up, down uint32) []*ie.IE {
	periodic := session.ReportingTrigger{Flags: session.RPT_TRIG_PERIO}
	volume := session.ReportingTrigger{Flags: session.RPT_TRIG_VOLTH | session.RPT_TRIG_VOLQU}
	return []*ie.IE{
		session.NewURRBuilder().WithID(up).WithMethod(session.Create).WithMeasurementMethod(0, 1, 0).
			WithMeasurementPeriod(time.Second).WithReportingTrigger(periodic).Build(),
		session.NewURRBuilder().WithID(down).WithMethod(session.Create).WithMeasurementMethod(0, 1, 0).
			WithMeasurementPeriod(time.Second).WithReportingTrigger(volume).
			WithVolumeThreshold(7, 1<<30, 1<<30, 1<<30).WithVolumeQuota(7, 1<<40, 1<<40, 1<<40).Build(),
	}
}

// modifyAll gives each session's downlink FAR a new action, and the gNB's tunnel.
func (s *smf) modifyAll(action uint8, accepted *int) error {
	for number, held := range s.sessions {
		down := uint32(number*mostRules + 2)
		far := session.NewFARBuilder().WithID(down).WithMethod(session.Update).WithAction(action).
			WithDstInterface(ie.DstInterfaceAccess).WithTEID(uint32(number + 1)).WithDownlinkIP(s.gnb).BuildFAR()
		urr := session.NewURRBuilder().WithID(down).WithMethod(session.Update).
			WithMeasurementPeriod(time.Second).Build()
		if err := s.ModifySession(held, nil, []*ie.IE{far}, nil, []*ie.IE{urr}); err != nil {
			return fmt.Errorf("modification %d: %w", number, err)
		}
		*accepted++
	}
	return nil
}
