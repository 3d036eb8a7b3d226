// Package telling is what all drivers in Go share: the assignment from the environment, and how they tell what happens.
package telling

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var out sync.Mutex

// Env is one variable of the assignment.
func Env(key string) string { return os.Getenv("CERTIFY_" + key) }

// Number is one variable that is a number.
func Number(key string) int {
	number, err := strconv.Atoi(Env(key))
	if err != nil {
		panic(err)
	}
	return number
}

// Config is CERTIFY_CONFIG's value of one of Kafka's keys, or fallback.
func Config(key, fallback string) string {
	var all map[string]any
	if err := json.Unmarshal([]byte(Env("CONFIG")), &all); err != nil {
		panic(err)
	}
	if value, found := all[key]; found {
		return strings.TrimSuffix(fmt.Sprint(value), ".0")
	}
	return fallback
}

// Milliseconds is one of Kafka's settings that is a time.
func Milliseconds(key string, fallback time.Duration) time.Duration {
	number, err := strconv.ParseFloat(Config(key, strconv.Itoa(int(fallback/time.Millisecond))), 64)
	if err != nil {
		panic(err)
	}
	return time.Duration(number) * time.Millisecond
}

// Value is the value of a message.
func Value(id int) []byte {
	digits := fmt.Sprintf("%010d", id)
	return []byte(digits + strings.Repeat(".", Number("VALUE_BYTES")-len(digits)))
}

// Key is the key of a message.
func Key(id int) []byte {
	if Number("KEYS") == 0 {
		return nil
	}
	return []byte(strconv.Itoa(id % Number("KEYS")))
}

// Pause waits as long as the assignment wants after a message.
func Pause() { time.Sleep(time.Duration(Number("PAUSE_MS")) * time.Millisecond) }

// Cannot ends a driver whose client does not have what is asked about.
func Cannot(why string) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(3)
}

// Received writes the line of a message that a share consumer has.
func Received(id int, partition int32, delivery int32) {
	write(map[string]any{"event": "received", "id": id, "partition": partition, "delivery": delivery})
}

// Tell writes a line; a negative id is left out.
func Tell(event string, id int, err error, partition int) {
	line := map[string]any{"event": event}
	if id >= 0 {
		line["id"] = id
	}
	if err != nil {
		line["error"] = err.Error()
	}
	if partition >= 0 {
		line["partition"] = partition
	}
	write(line)
}

func write(line map[string]any) {
	text, _ := json.Marshal(line)
	out.Lock()
	defer out.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

// Stopped is closed when SIGTERM or Ctrl-C comes.
func Stopped() <-chan struct{} {
	signals, stopped := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		close(stopped)
	}()
	return stopped
}

// ID is the id that a value begins with.
func ID(value []byte) int {
	id, err := strconv.Atoi(string(value[:10]))
	if err != nil {
		panic(err)
	}
	return id
}
