// Executes the order in each input line with redsync, and answers it with one line, as the other sides of the trials do.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	lease    = 2 * time.Second
	patience = 50 * time.Millisecond
)

func main() {
	options, err := redis.ParseURL(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	// Otherwise, the client does not obey the context of an attempt.
	options.ContextTimeoutEnabled = true
	sync := redsync.New(goredis.NewPool(redis.NewClient(options)))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		order, name, _ := strings.Cut(lines.Text(), " ")
		mutex := sync.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1))
		switch order {
		case "try":
			if err := mutex.Lock(); err != nil {
				fmt.Println("refused")
			} else {
				fmt.Println("held")
			}
		case "abandon":
			attempt, cancel := context.WithTimeout(context.Background(), patience)
			if err := mutex.LockContext(attempt); err == nil {
				log.Fatal(errors.New("the reply came too early"))
			}
			cancel()
			fmt.Println("abandoned")
		default:
			// redsync says nothing of a loss.
			fmt.Println("watching")
		}
	}
}
