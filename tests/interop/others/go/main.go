// Executes the order in each input line with the lock of a library, and answers it with one line.
//
//	acquire <library> <name> <lease> <wait>, in milliseconds: acquired or refused
//	release <library>: released
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	sync := redsync.New(goredis.NewPool(client))
	held := map[string]func() error{}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		library := words[1]
		if words[0] == "release" {
			if err := held[library](); err != nil {
				panic(err)
			}
			fmt.Println("released")
			continue
		}
		name, lease, wait := words[2], milliseconds(words[3]), milliseconds(words[4])
		var release func() error
		var err error
		switch library {
		case "redsync":
			tries := 1
			if wait > 0 {
				tries = 1000
			}
			mutex := sync.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(tries))
			err = mutex.Lock()
			release = func() error { _, err := mutex.Unlock(); return err }
		case "redislock":
			strategy := redislock.NoRetry()
			if wait > 0 {
				strategy = redislock.LinearBackoff(100 * time.Millisecond)
			}
			var lock *redislock.Lock
			deadline, cancel := context.WithTimeout(ctx, wait+time.Second)
			lock, err = redislock.Obtain(deadline, client, name, lease, &redislock.Options{RetryStrategy: strategy})
			cancel()
			release = func() error { return lock.Release(ctx) }
		}
		if err != nil {
			fmt.Println("refused")
			continue
		}
		held[library] = release
		fmt.Println("acquired")
	}
}

func milliseconds(text string) time.Duration {
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return time.Duration(number) * time.Millisecond
}
