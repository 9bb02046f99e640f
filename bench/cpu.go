package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cpu is processor time in seconds. Unlike events per second it hardly depends on what else the
// machine does.
type cpu struct{ postgres, redis, child, self float64 }

func (s *servers) cpu() cpu {
	var c cpu
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // elsewhere than on Linux there are none, and the columns say 0
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The name, in parentheses, may hold spaces; after it come state, parent, …, utime and
		// stime in ticks of 10 ms.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(fields[1])
		user, _ := strconv.ParseFloat(fields[11], 64)
		system, _ := strconv.ParseFloat(fields[12], 64)
		switch spent := (user + system) / 100; {
		case pid == s.postgres.PID():
			ended, _ := strconv.ParseFloat(fields[13], 64) // its children that are no more
			endedSystem, _ := strconv.ParseFloat(fields[14], 64)
			c.postgres += spent + (ended+endedSystem)/100
		case parent == s.postgres.PID():
			c.postgres += spent
		case pid == s.redis.PID():
			c.redis += spent
		case s.child != nil && pid == s.child.Pid:
			c.child += spent
		case pid == os.Getpid():
			c.self += spent
		}
	}
	return c
}

func (c cpu) minus(o cpu) cpu {
	return cpu{c.postgres - o.postgres, c.redis - o.redis, c.child - o.child, c.self - o.self}
}
