// sarama as a driver of kclient-quota certify.
package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"certify/telling"

	"github.com/IBM/sarama"
)

const perTransaction = 10

func main() {
	stopped := telling.Stopped()
	switch telling.Env("ROLE") {
	case "produce":
		produce(stopped)
	case "transact":
		transact()
	case "consume":
		consume(stopped)
	case "share-consume":
		telling.Cannot("sarama has no share consumer")
	default:
		createTopics()
	}
	telling.Tell("closed", -1, nil, -1)
}

func brokers() []string { return strings.Split(telling.Env("BOOTSTRAP_SERVERS"), ",") }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V3_6_0_0
	made.ClientID = telling.Env("CLIENT_ID")
	made.Net.ReadTimeout = telling.Milliseconds("request.timeout.ms", 30*time.Second)
	made.Producer.Return.Successes = true
	made.Producer.Return.Errors = true
	switch telling.Config("compression.type", "none") {
	case "lz4":
		made.Producer.Compression = sarama.CompressionLZ4
	case "zstd":
		made.Producer.Compression = sarama.CompressionZSTD
	}
	if telling.Config("acks", "all") == "0" {
		made.Producer.RequiredAcks = sarama.NoResponse
	}
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.Group.Session.Timeout = telling.Milliseconds("session.timeout.ms", 10*time.Second)
	made.Consumer.Group.Heartbeat.Interval = telling.Milliseconds("heartbeat.interval.ms", 3*time.Second)
	return made
}

func message(id int) *sarama.ProducerMessage {
	made := &sarama.ProducerMessage{Topic: telling.Env("TOPIC"), Value: sarama.ByteEncoder(telling.Value(id)), Metadata: id}
	if key := telling.Key(id); key != nil {
		made.Key = sarama.ByteEncoder(key)
	}
	return made
}

func produce(stopped <-chan struct{}) {
	producer, err := sarama.NewAsyncProducer(brokers(), config())
	must(err)
	var reports sync.WaitGroup
	go func() {
		for sent := range producer.Successes() {
			telling.Tell("acknowledged", sent.Metadata.(int), nil, -1)
			reports.Done()
		}
	}()
	go func() {
		for failed := range producer.Errors() {
			telling.Tell("failed", failed.Msg.Metadata.(int), failed.Err, -1)
			reports.Done()
		}
	}()
loop:
	for id := range telling.Number("MESSAGES") {
		reports.Add(1)
		select {
		case producer.Input() <- message(id):
			telling.Tell("sent", id, nil, -1)
		case <-stopped:
			reports.Done()
			break loop
		}
		telling.Pause()
	}
	reported := make(chan struct{})
	go func() {
		reports.Wait()
		close(reported)
	}()
	select {
	case <-reported: // a closing producer gives up what it would have tried again
	case <-stopped:
	}
	producer.AsyncClose()
	reports.Wait()
}

func transact() {
	made := config()
	made.Producer.Idempotent = true
	made.Producer.Transaction.ID = telling.Env("GROUP")
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(brokers(), made)
	must(err)
	for first := 0; first < telling.Number("MESSAGES"); first += perTransaction {
		must(producer.BeginTxn())
		end := min(first+perTransaction, telling.Number("MESSAGES"))
		for id := first; id < end; id++ {
			_, _, err := producer.SendMessage(message(id))
			must(err)
			telling.Tell("sent", id, nil, -1)
		}
		must(producer.CommitTxn())
		for id := first; id < end; id++ {
			telling.Tell("acknowledged", id, nil, -1)
		}
	}
	must(producer.Close())
}

type handler struct {
	seen sync.Map
	left chan int
}

func (*handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case record, open := <-claim.Messages():
			if !open {
				return nil
			}
			id := telling.ID(record.Value)
			telling.Tell("received", id, nil, int(record.Partition))
			session.MarkMessage(record, "")
			if _, again := h.seen.LoadOrStore(id, true); !again {
				h.left <- id
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func consume(stopped <-chan struct{}) {
	group, err := sarama.NewConsumerGroup(brokers(), telling.Env("GROUP"), config())
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	work := &handler{left: make(chan int, telling.Number("MESSAGES"))}
	go func() {
		defer cancel()
		for range telling.Number("MESSAGES") {
			select {
			case <-work.left:
			case <-stopped:
				return
			}
		}
	}()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{telling.Env("TOPIC")}, work); err != nil {
			telling.Tell("said", -1, err, -1)
			time.Sleep(100 * time.Millisecond)
		}
	}
	if err := group.Close(); err != nil {
		telling.Tell("said", -1, err, -1)
	}
}

func createTopics() {
	admin, err := sarama.NewClusterAdmin(brokers(), config())
	must(err)
	for id := range telling.Number("MESSAGES") {
		name := fmt.Sprintf("%s-made-%d", telling.Env("TOPIC"), id)
		if err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
			telling.Tell("failed", id, err, -1)
		} else {
			telling.Tell("acknowledged", id, nil, -1)
		}
	}
	must(admin.Close())
}
