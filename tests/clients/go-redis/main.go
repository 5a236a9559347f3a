// Command clients drives go-redis against a live server, or against a fleet.
//
//	clients HOST PORT          the library's single client
//	clients HOST PORT cluster  its cluster client; HOST:PORT is one server of the fleet
//
// It prints a line per check: `ok NAME` or `not ok NAME: REASON`.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const keyCount = 1000

var (
	failed bool
	title  = "go-redis"
	ctx    = context.Background()
)

func check(name string, body func() error) {
	if err := body(); err != nil {
		failed = true
		fmt.Printf("not ok %s %s: %s\n", title, name, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("ok %s %s\n", title, name)
}

// same fails unless the two print alike.
func same(got, wanted any) error {
	if left, right := fmt.Sprint(got), fmt.Sprint(wanted); left != right {
		return fmt.Errorf("expected %.200s, got %.200s", right, left)
	}
	return nil
}

// refused fails unless the error has the word in it.
func refused(err error, word string) error {
	if err == nil || !strings.Contains(err.Error(), word) {
		return fmt.Errorf("expected an error with %q, got %v", word, err)
	}
	return nil
}

func setGet(c redis.UniversalClient) error {
	_, errAbsent := c.Get(ctx, "absent").Result()
	return errors.Join(
		same(c.Set(ctx, "a", "hello", 0).Val(), "OK"),
		same(c.Get(ctx, "a").Val(), "hello"),
		same(errAbsent, redis.Nil),
		same(c.Exists(ctx, "a").Val(), 1),
		same(c.SetNX(ctx, "a", "x", 0).Val(), false),
		same(c.GetEx(ctx, "a", time.Minute).Val(), "hello"),
		same(c.TTL(ctx, "a").Val(), time.Minute),
		same(c.GetDel(ctx, "a").Val(), "hello"))
}

func values(c redis.UniversalClient) error {
	every := make([]byte, 0, 900*1024)
	for i := 0; i < cap(every); i++ {
		every = append(every, byte(i))
	}
	for _, value := range [][]byte{every, every[:300], {}} {
		if err := c.Set(ctx, "bytes", value, 0).Err(); err != nil {
			return err
		}
		got, err := c.Get(ctx, "bytes").Bytes()
		if err != nil || !bytes.Equal(got, value) {
			return fmt.Errorf("%d bytes, expected %d: %v", len(got), len(value), err)
		}
	}
	return errors.Join(
		refused(c.Set(ctx, "huge", make([]byte, 2000000), 0).Err(), "maximum allowed size"),
		same(c.Get(ctx, "huge").Err(), redis.Nil))
}

func arithmetic(c redis.UniversalClient) error {
	return errors.Join(
		c.Set(ctx, "n", 10, 0).Err(),
		same(c.IncrBy(ctx, "n", 5).Val(), 15),
		same(c.Decr(ctx, "n").Val(), 14),
		same(c.IncrByFloat(ctx, "n", 0.5).Val(), 14.5),
		refused(c.Incr(ctx, "n").Err(), "not an integer"))
}

func expiry(c redis.UniversalClient) error {
	if err := c.Set(ctx, "short", "x", 150*time.Millisecond).Err(); err != nil {
		return err
	}
	time.Sleep(400 * time.Millisecond)
	return same(c.Get(ctx, "short").Err(), redis.Nil)
}

func pipelines(c redis.UniversalClient) error {
	replies, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := 0; i < keyCount; i++ {
			p.Set(ctx, fmt.Sprint("p", i), i, 0)
			p.Get(ctx, fmt.Sprint("p", i))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := 0; i < keyCount; i++ {
		if err := same(replies[2*i+1].(*redis.StringCmd).Val(), i); err != nil {
			return err
		}
	}
	return nil
}

func transactions(c redis.UniversalClient) error {
	if err := c.Set(ctx, "balance", 10, 0).Err(); err != nil {
		return err
	}
	add := func(disturb bool) error {
		return c.Watch(ctx, func(tx *redis.Tx) error {
			seen, err := tx.Get(ctx, "balance").Int()
			if disturb {
				c.Set(ctx, "balance", 99, 0)
			}
			_, errPipe := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, "balance", seen+1, 0).Err() })
			return errors.Join(err, errPipe)
		}, "balance")
	}
	if err := add(true); !errors.Is(err, redis.TxFailedErr) {
		return fmt.Errorf("a disturbed transaction: %v", err)
	}
	return errors.Join(add(false), same(c.Get(ctx, "balance").Val(), 100))
}

func severalConnections(c redis.UniversalClient) error {
	var group sync.WaitGroup
	wrong := make(chan error, 50)
	for worker := 0; worker < 50; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; i < 100; i++ {
				key := fmt.Sprintf("c%d:%d", worker, i)
				if err := errors.Join(c.Set(ctx, key, i, 0).Err(), same(c.Get(ctx, key).Val(), i)); err != nil {
					wrong <- err
					return
				}
			}
		}()
	}
	group.Wait()
	close(wrong)
	return <-wrong
}

func whatIsRefused(c redis.UniversalClient) error {
	return errors.Join(
		refused(c.LPush(ctx, "list", "x").Err(), "no lists"),
		refused(c.Do(ctx, "FCALL", "f", 1, "x").Err(), "keeps no functions"))
}

func scripts(c redis.UniversalClient) error {
	release := redis.NewScript(`
		if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end
		return 0`)
	add := redis.NewScript(`return {redis.call("INCRBY", KEYS[1], ARGV[1]), KEYS[1], false}`)
	key := []string{"scripted"}
	piped, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		add.Eval(ctx, p, key, 5)
		add.EvalSha(ctx, p, key, 5)
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(
		same(piped[1].(*redis.Cmd).Val(), []any{10, "scripted", nil}),
		c.Set(ctx, "scripted", "mine", time.Minute).Err(),
		same(release.Run(ctx, c, key, "theirs").Val(), 0),
		same(release.Run(ctx, c, key, "mine").Val(), 1),
		refused(redis.NewScript("return (").Run(ctx, c, key).Err(), "Error compiling script"),
		refused(redis.NewScript(`return redis.call("SET", KEYS[1], "x")`).RunRO(ctx, c, key).Err(), "read-only"),
		same(c.Exists(ctx, "scripted").Val(), 0))
}

func severalKeys(c redis.UniversalClient) error {
	return errors.Join(
		same(c.MSet(ctx, "{m}1", 1, "{m}2", 2).Val(), "OK"),
		same(c.MGet(ctx, "{m}1", "{m}3", "{m}2").Val(), []any{"1", nil, "2"}),
		same(c.Del(ctx, "{m}1", "{m}2", "{m}3").Val(), 2))
}

func scan(c *redis.Client) error {
	seen := map[string]bool{}
	all := c.Scan(ctx, 0, "p*", 100).Iterator()
	for all.Next(ctx) {
		seen[all.Val()] = true
	}
	return errors.Join(all.Err(), same(len(seen), keyCount))
}

// until asks again and again, and fails if that takes a minute.
func until(what string, happens func() bool) error {
	for deadline := time.Now().Add(time.Minute); !happens(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("never happened: %s", what)
		}
	}
	return nil
}

// pubSub hears what is published: channels, patterns, shards, and all of it again after a lost connection.
func pubSub(c *redis.Client, protocol int) error {
	own := redis.NewClient(&redis.Options{Addr: c.Options().Addr, Protocol: protocol})
	defer own.Close()
	heard := own.Subscribe(ctx, "news", "grüße")
	defer heard.Close()
	first, err := heard.Receive(ctx)
	if err := errors.Join(err, same(first, "subscribe: news"), heard.PSubscribe(ctx, "n?ws")); err != nil {
		return err
	}
	both := func() bool {
		return c.PubSubNumSub(ctx, "news").Val()["news"] == 1 && c.PubSubNumPat(ctx).Val() == 1
	}
	published := func() error { return same(c.Publish(ctx, "news", "x").Val(), 2) }
	if err := errors.Join(until("both are subscribed", both), published()); err != nil {
		return err
	}
	every := strings.Repeat("\x00\r\n\xff", 100_000)
	messages := heard.Channel()
	if err := errors.Join(
		same(<-messages, "Message<news: x>"), same(<-messages, "Message<news: x>"),
		same(c.Publish(ctx, "grüße", every).Val(), 1), same((<-messages).Payload == every, true),
		same(c.PubSubNumSub(ctx, "news", "none").Val(), map[string]int64{"news": 1, "none": 0}),
		same(c.PubSubNumPat(ctx).Val(), 1), same(c.PubSubChannels(ctx, "n*").Val(), []string{"news"}),
		heard.Ping(ctx, "text"), c.Do(ctx, "CLIENT", "KILL", "TYPE", "PUBSUB").Err(),
		until("it subscribes again", both), published(),
		same(<-messages, "Message<news: x>"), heard.Unsubscribe(ctx), heard.PUnsubscribe(ctx),
		until("nobody hears", func() bool { return c.Publish(ctx, "news", "x").Val() == 0 })); err != nil {
		return err
	}
	shard := own.SSubscribe(ctx, "shard")
	defer shard.Close()
	return errors.Join(
		until("a shard is heard", func() bool { return c.SPublish(ctx, "shard", "y").Val() == 1 }),
		same(<-shard.Channel(), "Message<shard: y>"), same(c.Publish(ctx, "shard", "y").Val(), 0))
}

// clientSideCache reads from the client's memory until the server says that a key has changed.
func clientSideCache(c *redis.Client) error {
	cache := redis.NewLocalCache(redis.CacheConfig{MaxEntries: 100})
	own := redis.NewClient(&redis.Options{Addr: c.Options().Addr, Protocol: 3, ClientSideCache: cache})
	defer own.Close()
	reads := func(want any) error {
		var wrong error
		for i := 0; i < 10; i++ {
			wrong = errors.Join(wrong, same(own.Get(ctx, "cached").Val(), want))
		}
		return wrong
	}
	forgets := func(what string, change redis.Cmder, want any) error {
		kept := func() bool { return own.Ping(ctx).Err() != nil || cache.Len() == 0 }
		return errors.Join(change.Err(), until(what, kept), reads(want))
	}
	if err := errors.Join(c.Set(ctx, "cached", "x", 0).Err(), reads("x")); err != nil {
		return err
	}
	return errors.Join(
		same(own.CSCStats().Hits >= 8, true),
		forgets("SET", c.Set(ctx, "cached", "y", 0), "y"),
		forgets("EXPIRE", c.Expire(ctx, "cached", time.Minute), "y"),
		forgets("EVAL", c.Eval(ctx, `return redis.call("SET", KEYS[1], "z")`, []string{"cached"}), "z"),
		c.PExpire(ctx, "cached", 100*time.Millisecond).Err(),
		until("the end of a key", func() bool { return errors.Is(own.Get(ctx, "cached").Err(), redis.Nil) }),
		forgets("SET of an absent key", c.Set(ctx, "cached", "w", 0), "w"),
		forgets("FLUSHALL", c.FlushAll(ctx), ""))
}

// spread fails unless every server has a share of the keys, and only keys of its own slots.
func spread(c *redis.ClusterClient) error {
	var lock sync.Mutex
	var shares []int64
	err := c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		count, err := node.DBSize(ctx).Result()
		lock.Lock()
		defer lock.Unlock()
		shares = append(shares, count)
		return err
	})
	if err != nil {
		return err
	}
	for _, share := range shares {
		if share < keyCount/10 {
			return fmt.Errorf("keys of the servers: %v", shares)
		}
	}
	return same(len(shares) > 1, true)
}

func main() {
	address := net.JoinHostPort(os.Args[1], os.Args[2])
	isCluster := len(os.Args) > 3 && os.Args[3] == "cluster"
	var client redis.UniversalClient
	if isCluster {
		title += " cluster"
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}})
	} else {
		client = redis.NewClient(&redis.Options{Addr: address})
	}
	for _, each := range []struct {
		name string
		body func(redis.UniversalClient) error
	}{
		{"set and get", setGet}, {"values", values}, {"arithmetic", arithmetic}, {"expiry", expiry},
		{"pipelines", pipelines}, {"transactions", transactions}, {"several connections", severalConnections},
		{"what is refused", whatIsRefused}, {"several keys", severalKeys}, {"scripts", scripts},
	} {
		check(each.name, func() error { return each.body(client) })
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		check("a share for each server", func() error { return spread(cluster) })
	} else {
		single := client.(*redis.Client)
		check("a scan", func() error { return scan(single) })
		check("RESP2", func() error {
			old := redis.NewClient(&redis.Options{Addr: address, Protocol: 2})
			defer old.Close()
			return same(old.Get(ctx, "p7").Val(), "7")
		})
		check("publish and subscribe", func() error { return errors.Join(pubSub(single, 2), pubSub(single, 3)) })
		check("a cache on the side of the client", func() error { return clientSideCache(single) })
		check("flush", func() error { return errors.Join(client.FlushAll(ctx).Err(), same(client.DBSize(ctx).Val(), 0)) })
	}
	if err := client.Close(); err != nil || failed {
		os.Exit(1)
	}
}
