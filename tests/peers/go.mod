module pktswarm/peers

go 1.21

require (
	github.com/omec-project/pfcpsim v1.2.0
	github.com/wmnsk/go-pfcp v0.0.24
	go.uber.org/zap v1.27.0
)

require go.uber.org/multierr v1.10.0 // indirect
