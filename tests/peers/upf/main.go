// Command upf acts as a UPF's N4 side for tests, by go-pfcp: it decodes strictly what an SMF sends, answers it, and
// prints as JSON what it received and what it did not understand, at SIGTERM.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/wmnsk/go-pfcp/ie"
)

func main() {
	address := flag.String("address", "127.0.0.1", "the UPF's address for PFCP")
	port := flag.Int("port", 8805, "its UDP port")
	release := flag.Int("release", 16, "the release of TS 29.244 whose lengths are expected")
	asks := flag.Uint("ask", 0, "send requests of the UPF's own behind so many establishments")
	flag.Parse()
	ip := net.ParseIP(*address)
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip, Port: *port})
	if err != nil {
		log.Fatal(err)
	}
	// A burst waits while a busy machine runs something else; the kernel gives less where it has less.
	_ = socket.SetReadBuffer(4 << 20)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		_ = socket.Close()
	}()
	served := &peer{
		judge: newJudge(*release), socket: socket, address: ip, asks: uint32(*asks),
		node:     ie.NewNodeID("", "", "upf.example.org"),
		sessions: map[uint64]*session{}, answers: map[string]answered{}, outstanding: map[uint32]uint8{},
	}
	fmt.Println("ready")
	if err := served.serve(); err != nil {
		log.Fatal(err)
	}
	served.judge.Sessions = len(served.sessions)
	if err := json.NewEncoder(os.Stdout).Encode(served.judge); err != nil {
		log.Fatal(err)
	}
}

func (p *peer) serve() error {
	for buffer := make([]byte, 65535); ; {
		length, sender, err := p.socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.receive(append([]byte(nil), buffer[:length]...), sender); err != nil {
			return err
		}
	}
}
