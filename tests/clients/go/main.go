// Command clients drives gomemcache against a live server: HOST and PORT are its arguments.
// It prints a line per check: `ok NAME` or `not ok NAME: REASON`.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

var failed bool

func check(name string, body func(c *memcache.Client) error, c *memcache.Client) {
	if err := body(c); err != nil {
		failed = true
		fmt.Printf("not ok gomemcache %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("ok gomemcache %s\n", name)
}

// want fails unless the client answered with exactly this error.
func want(got, wanted error) error {
	if !errors.Is(got, wanted) {
		return fmt.Errorf("expected %v, got %v", wanted, got)
	}
	return nil
}

// holds fails unless the key has this value.
func holds(c *memcache.Client, key string, value []byte) error {
	item, err := c.Get(key)
	if err != nil {
		return err
	}
	if !bytes.Equal(item.Value, value) {
		return fmt.Errorf("%s: %d bytes, expected %d", key, len(item.Value), len(value))
	}
	return nil
}

func item(key, value string) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value)}
}

func setGet(c *memcache.Client) error {
	err := c.Set(&memcache.Item{Key: "a", Value: []byte("hello"), Flags: 4294967295})
	got, errGet := c.Get("a")
	if errGet == nil && got.Flags != 4294967295 {
		return fmt.Errorf("flags %d", got.Flags)
	}
	_, errAbsent := c.Get("absent")
	return errors.Join(err, errGet, holds(c, "a", []byte("hello")), want(errAbsent, memcache.ErrCacheMiss))
}

func several(c *memcache.Client) error {
	var keys []string
	for i := 0; i < 300; i++ {
		key := fmt.Sprintf("m%d", i)
		keys = append(keys, key)
		if err := c.Set(item(key, key)); err != nil {
			return err
		}
	}
	got, err := c.GetMulti(append(keys, "absent1", "absent2"))
	if err != nil {
		return err
	}
	if len(got) != 300 || string(got["m7"].Value) != "m7" {
		return fmt.Errorf("%d items", len(got))
	}
	return nil
}

func addReplace(c *memcache.Client) error {
	return errors.Join(
		want(c.Replace(item("b", "x")), memcache.ErrNotStored),
		c.Add(item("b", "x")),
		want(c.Add(item("b", "y")), memcache.ErrNotStored),
		c.Replace(item("b", "z")),
		holds(c, "b", []byte("z")))
}

func appendPrepend(c *memcache.Client) error {
	return errors.Join(
		want(c.Append(item("c", "x")), memcache.ErrNotStored),
		c.Set(item("c", "mid")), c.Append(item("c", ">")), c.Prepend(item("c", "<")),
		holds(c, "c", []byte("<mid>")))
}

func compareAndSwap(c *memcache.Client) error {
	if err := c.Set(item("d", "1")); err != nil {
		return err
	}
	first, err := c.Get("d")
	if err != nil {
		return err
	}
	second, _ := c.Get("d")
	first.Value, second.Value = []byte("2"), []byte("3")
	err = errors.Join(c.CompareAndSwap(first), want(c.CompareAndSwap(second), memcache.ErrCASConflict),
		holds(c, "d", []byte("2")))
	third, _ := c.Get("d")
	return errors.Join(err, c.Delete("d"), want(c.CompareAndSwap(third), memcache.ErrCacheMiss))
}

func arithmetic(c *memcache.Client) error {
	if err := c.Set(item("n", "10")); err != nil {
		return err
	}
	up, errUp := c.Increment("n", 5)
	down, errDown := c.Decrement("n", 20)
	_, errAbsent := c.Increment("absent", 1)
	if up != 15 || down != 0 {
		return fmt.Errorf("%d, %d", up, down)
	}
	_ = c.Set(item("s", "text"))
	if _, err := c.Increment("s", 1); err == nil || !strings.Contains(err.Error(), "non-numeric") {
		return fmt.Errorf("increment of text: %v", err)
	}
	return errors.Join(errUp, errDown, want(errAbsent, memcache.ErrCacheMiss))
}

func touch(c *memcache.Client) error {
	err := errors.Join(c.Set(item("t", "x")), c.Touch("t", 100), want(c.Touch("absent", 100), memcache.ErrCacheMiss))
	got, errTouch := c.GetAndTouch("t", 100)
	if errTouch == nil && string(got.Value) != "x" {
		return fmt.Errorf("value %q", got.Value)
	}
	return errors.Join(err, errTouch)
}

func expiry(c *memcache.Client) error {
	err := errors.Join(
		c.Set(&memcache.Item{Key: "e", Value: []byte("x"), Expiration: 1}),
		c.Set(&memcache.Item{Key: "f", Value: []byte("x"), Expiration: 100}))
	time.Sleep(2200 * time.Millisecond)
	_, errGone := c.Get("e")
	return errors.Join(err, want(errGone, memcache.ErrCacheMiss), holds(c, "f", []byte("x")))
}

func awkwardAndLarge(c *memcache.Client) error {
	var all []byte
	for i := 0; i < 256; i++ {
		all = append(all, byte(i))
	}
	awkward := append(append([]byte{}, all...), "\r\nEND\r\nVALUE a 0 1\r\n"...)
	large := bytes.Repeat(all, 3900)
	return errors.Join(
		c.Set(&memcache.Item{Key: "bin", Value: awkward}), holds(c, "bin", awkward),
		c.Set(&memcache.Item{Key: "large", Value: large}), holds(c, "large", large),
		c.Set(item("empty", "")), holds(c, "empty", nil))
}

func tooLarge(c *memcache.Client) error {
	if err := c.Set(&memcache.Item{Key: "huge", Value: make([]byte, 2000000)}); err == nil {
		return errors.New("stored")
	}
	_, err := c.Get("huge")
	return want(err, memcache.ErrCacheMiss)
}

func keys(c *memcache.Client) error {
	long := strings.Repeat("k", 250)
	return errors.Join(c.Set(item(long, "x")), holds(c, long, []byte("x")),
		c.Set(item("grüße-世界", "x")), holds(c, "grüße-世界", []byte("x")),
		want(c.Set(item(strings.Repeat("k", 251), "x")), memcache.ErrMalformedKey))
}

func remove(c *memcache.Client) error {
	return errors.Join(c.Set(item("x", "x")), c.Delete("x"), want(c.Delete("x"), memcache.ErrCacheMiss))
}

func crowd(c *memcache.Client) error {
	var all sync.WaitGroup
	wrong := make(chan error, 32)
	for worker := 0; worker < 32; worker++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := 0; i < 100; i++ {
				key := fmt.Sprintf("w%d-%d", worker, i)
				if err := errors.Join(c.Set(item(key, key)), holds(c, key, []byte(key))); err != nil {
					wrong <- err
					return
				}
			}
		}()
	}
	all.Wait()
	select {
	case err := <-wrong:
		return err
	default:
		return nil
	}
}

func ping(c *memcache.Client) error { return c.Ping() }

func flush(c *memcache.Client) error {
	err := errors.Join(c.Set(item("z", "x")), c.FlushAll())
	_, errGone := c.Get("z")
	return errors.Join(err, want(errGone, memcache.ErrCacheMiss))
}

func main() {
	c := memcache.New(os.Args[1] + ":" + os.Args[2])
	c.Timeout = 20 * time.Second
	c.MaxIdleConns = 64
	check("set and get", setGet, c)
	check("several keys", several, c)
	check("add and replace", addReplace, c)
	check("append and prepend", appendPrepend, c)
	check("compare and swap", compareAndSwap, c)
	check("arithmetic", arithmetic, c)
	check("touch", touch, c)
	check("expiry", expiry, c)
	check("awkward and large values", awkwardAndLarge, c)
	check("too large a value", tooLarge, c)
	check("keys", keys, c)
	check("delete", remove, c)
	check("thirty-two at once", crowd, c)
	check("ping", ping, c)
	check("flush", flush, c)
	if failed {
		os.Exit(1)
	}
}
