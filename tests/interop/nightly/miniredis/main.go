// Serves miniredis on a free port, which it prints, until its standard input ends. Miniredis has a clock of its own: a
// program moves it.
package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		panic(err)
	}
	go func() {
		const tick = 10 * time.Millisecond
		for range time.Tick(tick) {
			server.FastForward(tick)
		}
	}()
	fmt.Println(server.Port())
	_, _ = io.Copy(io.Discard, os.Stdin)
}
