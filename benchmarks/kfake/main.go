// Holds franz-go's fake cluster until standard input ends; prints start-up time and address as one JSON line.
package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	begin := time.Now()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "bench"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer cluster.Close()
	fmt.Printf("{\"start_ms\": %f, \"bootstrap\": %q}\n", time.Since(begin).Seconds()*1000, cluster.ListenAddrs()[0])
	io.Copy(io.Discard, os.Stdin)
}
