// Measures how soon rueidislock ends the context of a lock that another client changes.
//
// Reads what happens from its input, a word on each line, and writes the milliseconds until the context has ended.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

const (
	name  = "order:42"
	key   = "peer:0:" + name
	lease = 300 * time.Second
)

func main() {
	option := rueidis.ClientOption{InitAddress: []string{os.Args[1]}}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: option, KeyMajority: 1, KeyPrefix: "peer", KeyValidity: lease,
	})
	check(err)
	defer locker.Close()
	client, err := rueidis.NewClient(option)
	check(err)
	defer client.Close()
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		fmt.Printf("%.3f\n", loss(locker, client, input.Text()))
	}
}

func loss(locker rueidislock.Locker, client rueidis.Client, cause string) float64 {
	ctx := context.Background()
	held, cancel, err := locker.TryWithContext(ctx, name)
	check(err)
	defer cancel()
	time.Sleep(20 * time.Millisecond)
	ended := make(chan time.Time)
	go func() {
		<-held.Done()
		ended <- time.Now()
	}()
	command := map[string]rueidis.Completed{
		"Del":      client.B().Del().Key(key).Build(),
		"Set":      client.B().Set().Key(key).Value("another").Px(lease).Build(),
		"FlushAll": client.B().Flushall().Build(),
	}[cause]
	begun := time.Now()
	check(client.Do(ctx, command).Error())
	known := (<-ended).Sub(begun)
	check(client.Do(ctx, client.B().Del().Key(key).Build()).Error())
	return float64(known.Microseconds()) / 1000
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
