// A process that locks the key `trial` by redsync: the words are those of holder.rs.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	options, err := redis.ParseURL(os.Args[2])
	check(err)
	options.ContextTimeoutEnabled = true
	lease, err := strconv.Atoi(os.Args[4])
	check(err)
	locks := redsync.New(goredis.NewPool(redis.NewClient(options)))
	mutex := locks.NewMutex("trial", redsync.WithExpiry(time.Duration(lease)*time.Millisecond))
	switch os.Args[3] {
	case "cancel":
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		if mutex.LockContext(ctx) == nil {
			panic("the server has answered")
		}
		cancel()
		fmt.Println("cancelled")
	case "drop":
		check(mutex.Lock())
		mutex = nil
		fmt.Println("dropped")
	default:
		check(mutex.Lock())
		fmt.Println("held")
	}
	time.Sleep(time.Hour)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
