// franz-go as a driver of kclient-quota certify.
package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"certify/telling"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	closing        = 10 * time.Second
	perTransaction = 10
)

func main() {
	stopped := telling.Stopped()
	switch telling.Env("ROLE") {
	case "produce":
		produce(stopped)
	case "transact":
		transact()
	case "consume":
		consume(stopped, kgo.ConsumerGroup(telling.Env("GROUP")), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.SessionTimeout(telling.Milliseconds("session.timeout.ms", 45*time.Second)),
			kgo.HeartbeatInterval(telling.Milliseconds("heartbeat.interval.ms", 3*time.Second)))
	case "share-consume":
		consume(stopped, kgo.ShareGroup(telling.Env("GROUP")))
	default:
		createTopics()
	}
	telling.Tell("closed", -1, nil, -1)
}

func client(more ...kgo.Opt) *kgo.Client {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(telling.Env("BOOTSTRAP_SERVERS"), ",")...),
		kgo.ClientID(telling.Env("CLIENT_ID")),
		kgo.DefaultProduceTopic(telling.Env("TOPIC")),
		kgo.RequestTimeoutOverhead(telling.Milliseconds("request.timeout.ms", 10*time.Second)),
		kgo.RecordDeliveryTimeout(telling.Milliseconds("delivery.timeout.ms", 120*time.Second)),
		kgo.ProducerBatchCompression(compression()),
	}
	if telling.Config("acks", "all") == "0" {
		options = append(options, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	}
	made, err := kgo.NewClient(append(options, more...)...)
	if err != nil {
		panic(err)
	}
	return made
}

func compression() kgo.CompressionCodec {
	switch telling.Config("compression.type", "none") {
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}

func produce(stopped <-chan struct{}) {
	producer := client()
	ctx := context.Background()
	var reports sync.WaitGroup
loop:
	for id := range telling.Number("MESSAGES") {
		select {
		case <-stopped:
			break loop
		default:
		}
		reports.Add(1)
		record := &kgo.Record{Key: telling.Key(id), Value: telling.Value(id)}
		producer.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err == nil {
				telling.Tell("acknowledged", id, nil, -1)
			} else {
				telling.Tell("failed", id, err, -1)
			}
			reports.Done()
		})
		telling.Tell("sent", id, nil, -1)
		telling.Pause()
	}
	reported := make(chan struct{})
	go func() {
		reports.Wait()
		close(reported)
	}()
	select {
	case <-reported:
	case <-stopped:
		soon, cancel := context.WithTimeout(ctx, closing/2)
		defer cancel()
		if producer.Flush(soon) != nil { // what cannot be delivered is given up: each gets its report
			producer.AbortBufferedRecords(ctx)
		}
	}
	producer.Close()
}

func transact() {
	producer := client(kgo.TransactionalID(telling.Env("GROUP")))
	ctx := context.Background()
	for first := 0; first < telling.Number("MESSAGES"); first += perTransaction {
		if err := producer.BeginTransaction(); err != nil {
			panic(err)
		}
		end := min(first+perTransaction, telling.Number("MESSAGES"))
		for id := first; id < end; id++ {
			producer.Produce(ctx, &kgo.Record{Value: telling.Value(id)}, nil)
			telling.Tell("sent", id, nil, -1)
		}
		if err := producer.Flush(ctx); err != nil {
			panic(err)
		}
		if err := producer.EndTransaction(ctx, kgo.TryCommit); err != nil {
			panic(err)
		}
		for id := first; id < end; id++ {
			telling.Tell("acknowledged", id, nil, -1)
		}
	}
	producer.Close()
}

func consume(stopped <-chan struct{}, group ...kgo.Opt) {
	shared := telling.Env("ROLE") == "share-consume"
	consumer := client(append(group, kgo.ConsumeTopics(telling.Env("TOPIC")))...)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-stopped
		cancel()
	}()
	seen := map[int]bool{}
	for len(seen) < telling.Number("MESSAGES") && ctx.Err() == nil {
		fetches := consumer.PollFetches(ctx)
		fetches.EachError(func(topic string, partition int32, err error) {
			if ctx.Err() == nil {
				telling.Tell("said", -1, fmt.Errorf("%s %d: %w", topic, partition, err), -1)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			id := telling.ID(record.Value)
			seen[id] = true
			if shared {
				telling.Received(id, record.Partition, record.DeliveryCount())
			} else {
				telling.Tell("received", id, nil, int(record.Partition))
			}
		})
	}
	if shared {
		soon, cancel := context.WithTimeout(context.Background(), closing/2)
		defer cancel()
		if err := consumer.FlushAcks(soon); err != nil {
			telling.Tell("said", -1, err, -1)
		}
	} else if ctx.Err() == nil {
		if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
			telling.Tell("said", -1, err, -1)
		}
	}
	consumer.Close()
}

func createTopics() {
	admin := kadm.NewClient(client())
	defer admin.Close()
	for id := range telling.Number("MESSAGES") {
		name := fmt.Sprintf("%s-made-%d", telling.Env("TOPIC"), id)
		if _, err := admin.CreateTopic(context.Background(), 1, 1, nil, name); err != nil {
			telling.Tell("failed", id, err, -1)
		} else {
			telling.Tell("acknowledged", id, nil, -1)
		}
	}
}
