// segmentio/kafka-go as a driver of kclient-quota certify. It has no transactions and no quota errors of its own.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"certify/telling"

	"github.com/segmentio/kafka-go"
)

func main() {
	stopped := telling.Stopped()
	switch telling.Env("ROLE") {
	case "produce":
		produce(stopped)
	case "consume":
		consume(stopped)
	case "create-topics":
		createTopics()
	case "share-consume":
		telling.Cannot("kafka-go has no share consumer")
	default:
		fmt.Fprintln(os.Stderr, "kafka-go has no transactions")
		os.Exit(3)
	}
	telling.Tell("closed", -1, nil, -1)
}

func addresses() []string { return strings.Split(telling.Env("BOOTSTRAP_SERVERS"), ",") }

func transport() *kafka.Transport { return &kafka.Transport{ClientID: telling.Env("CLIENT_ID")} }

func produce(stopped <-chan struct{}) {
	writer := &kafka.Writer{
		Addr: kafka.TCP(addresses()...), Topic: telling.Env("TOPIC"), Balancer: kafka.CRC32Balancer{},
		Async: true, RequiredAcks: kafka.RequireAll, Transport: transport(), BatchTimeout: 10 * time.Millisecond,
		ReadTimeout: telling.Milliseconds("request.timeout.ms", 10*time.Second),
		Completion: func(messages []kafka.Message, err error) {
			for _, message := range messages {
				if err == nil {
					telling.Tell("acknowledged", telling.ID(message.Value), nil, -1)
				} else {
					telling.Tell("failed", telling.ID(message.Value), err, -1)
				}
			}
		},
	}
	if telling.Config("acks", "all") == "0" {
		writer.RequiredAcks = kafka.RequireNone
	}
	if telling.Config("compression.type", "none") == "lz4" {
		writer.Compression = kafka.Lz4
	}
	for id := range telling.Number("MESSAGES") {
		select {
		case <-stopped:
			writer.Close()
			return
		default:
		}
		message := kafka.Message{Key: telling.Key(id), Value: telling.Value(id)}
		if err := writer.WriteMessages(context.Background(), message); err != nil {
			telling.Tell("failed", id, err, -1)
			continue
		}
		telling.Tell("sent", id, nil, -1)
		telling.Pause()
	}
	writer.Close()
}

func consume(stopped <-chan struct{}) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: addresses(), GroupID: telling.Env("GROUP"), Topic: telling.Env("TOPIC"), StartOffset: kafka.FirstOffset,
		Dialer:            &kafka.Dialer{ClientID: telling.Env("CLIENT_ID"), Timeout: 10 * time.Second},
		SessionTimeout:    telling.Milliseconds("session.timeout.ms", 30*time.Second),
		HeartbeatInterval: telling.Milliseconds("heartbeat.interval.ms", 3*time.Second),
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-stopped
		cancel()
	}()
	seen := map[int]bool{}
	for len(seen) < telling.Number("MESSAGES") && ctx.Err() == nil {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			if ctx.Err() == nil {
				telling.Tell("said", -1, err, -1)
			}
			continue
		}
		id := telling.ID(message.Value)
		seen[id] = true
		telling.Tell("received", id, nil, message.Partition)
		if len(seen) == telling.Number("MESSAGES") {
			if err := reader.CommitMessages(ctx, message); err != nil {
				telling.Tell("said", -1, err, -1)
			}
		}
	}
	reader.Close()
}

func createTopics() {
	client := &kafka.Client{Addr: kafka.TCP(addresses()...), Transport: transport()}
	for id := range telling.Number("MESSAGES") {
		topic := kafka.TopicConfig{
			Topic: fmt.Sprintf("%s-made-%d", telling.Env("TOPIC"), id), NumPartitions: 1, ReplicationFactor: 1,
		}
		answer, err := client.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
		if err == nil {
			err = answer.Errors[topic.Topic]
		}
		if err != nil {
			telling.Tell("failed", id, err, -1)
		} else {
			telling.Tell("acknowledged", id, nil, -1)
		}
	}
}
