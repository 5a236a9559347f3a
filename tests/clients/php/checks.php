<?php
/** A small collector of checks for the PHP suites: one line per check, and an exit status. */

const EXPIRY_SECONDS = 1;
const PROCESSES = 4;
define('AWKWARD', implode(array_map('chr', range(0, 255))) . "\r\nEND\r\nVALUE a 0 1\r\n\x80\x81");
define('LARGE', str_repeat(implode(array_map('chr', range(0, 255))), 3900));

/** A check that fails. */
final class Failed extends Exception
{
}

/** A check that says nothing about this server; the message says why. */
final class Skipped extends Exception
{
}

/** A group of checks: each public method but the constructor is one, in the order in which they are written. */
abstract class Suite
{
    /** `$label` is what stands before the name of each check. */
    public function __construct(public readonly string $label, protected string $host, protected int $port)
    {
    }
}

/** Runs suites and prints `ok NAME`, `not ok NAME: REASON` or `skip NAME: REASON` for each check. */
final class Checks
{
    private int $failed = 0;

    /** Suites that do not disturb each other, each in a process; `$makers` says how to make each of its label. */
    public function together(array $makers): void
    {
        $works = array_map(fn ($label) => fn () => $this->printed($label, $makers[$label]), array_keys($makers));
        foreach (answers_of($works) as $number => $answer) {
            $label = array_keys($makers)[$number];
            [$text, $failed] = $answer['value'][0] ?? ["not ok $label: {$answer['failed']}\n", 1];
            echo $text;
            $this->failed += $failed;
        }
    }

    /** What the checks of one suite print, and how many fail. */
    private function printed(string $label, callable $make): array
    {
        ob_start();
        try {
            $this->suite($make($label));
        } catch (Skipped $reason) {
            echo "skip $label: {$reason->getMessage()}\n";
        }
        return [ob_get_clean(), $this->failed];
    }

    /** All checks of a suite. */
    private function suite(Suite $suite): void
    {
        foreach ((new ReflectionClass($suite))->getMethods(ReflectionMethod::IS_PUBLIC) as $method) {
            if (!$method->isConstructor()) {
                $this->run($suite->label . ' ' . $method->name, $method->getClosure($suite));
            }
        }
    }

    /** One check: it passes if `$check` throws nothing. */
    private function run(string $name, callable $check): void
    {
        try {
            $check();
            echo "ok $name\n";
        } catch (Skipped $reason) {
            echo "skip $name: {$reason->getMessage()}\n";
        } catch (Throwable $error) {
            $this->failed++;
            echo "not ok $name: " . told($error) . "\n";
        }
    }

    /** Leaves the program with the exit status of all suites. */
    public function end(): never
    {
        exit($this->failed ? 1 : 0);
    }
}

/** What went wrong, with the lines of the suites that led there, in one line. */
function told(Throwable $error): string
{
    $lines = [];
    foreach (array_merge([['file' => $error->getFile(), 'line' => $error->getLine()]], $error->getTrace()) as $frame) {
        $file = $frame['file'] ?? '';
        if (dirname($file) === __DIR__ && $file !== __FILE__ && basename($file) !== 'suite.php') {
            $lines[] = basename($file) . ':' . $frame['line'];
        }
    }
    $text = str_replace(["\r", "\n"], ' ', $error->getMessage()) ?: get_class($error);
    return substr($text, 0, 300) . ' (' . implode(' ', array_slice($lines, 0, 3)) . ')';
}

/** A value in a few words. */
function short(mixed $value): string
{
    $text = json_encode($value, JSON_INVALID_UTF8_SUBSTITUTE | JSON_PRESERVE_ZERO_FRACTION);
    $text = is_object($value) ? get_class($value) . ' ' . $text : $text;
    return strlen($text) < 120 ? $text : substr($text, 0, 117) . '...';
}

/** Fails unless the two are of one type and equal; two objects have to have equal properties. */
function same(mixed $got, mixed $wanted): void
{
    if ($got !== $wanted && !(is_object($got) && $got == $wanted)) {
        throw new Failed('expected ' . short($wanted) . ', got ' . short($got));
    }
}

/** Fails unless the two have the same values, in whatever order. */
function same_values(iterable $got, array $wanted): void
{
    $got = is_array($got) ? $got : iterator_to_array($got, false);
    sort($got);
    sort($wanted);
    same($got, $wanted);
}

/** Fails unless the value counts as true. */
function holds(mixed $got): void
{
    if (!$got) {
        throw new Failed('expected something true, got ' . short($got));
    }
}

/** Fails unless the number is above `$low` and at most `$high`. */
function between(int|float $low, mixed $got, int|float $high): void
{
    if (!is_numeric($got) || $got <= $low || $got > $high) {
        throw new Failed("expected more than $low and at most $high, got " . short($got));
    }
}

/** Fails unless the call throws a `$kind` whose message contains `$text`; returns what was thrown. */
function raises(string $kind, string $text, callable $call): Throwable
{
    try {
        $got = $call();
    } catch (Throwable $error) {
        if ($error instanceof $kind && str_contains($error->getMessage(), $text)) {
            return $error;
        }
        throw $error;
    }
    throw new Failed("no $kind, got " . short($got));
}

/** Returns what `$happens` returns, once that counts as true; fails if that takes a minute. */
function until(callable $happens): mixed
{
    $deadline = microtime(true) + 60;
    while (!($found = $happens())) {
        if (microtime(true) > $deadline) {
            throw new Failed('it does not happen within a minute');
        }
        usleep(10_000);
    }
    return $found;
}

/**
 * What `$work` returns in each of several processes, which begin together; fails if one of them fails.
 *
 * `$work` is given the number of its process, and has to open connections of its own.
 */
function in_processes(callable $work, int $count = PROCESSES): array
{
    $answers = answers_of(array_map(fn ($number) => fn () => $work($number), range(0, $count - 1)));
    foreach ($answers as $answer) {
        if (!isset($answer['value'])) {
            throw new Failed('in a process: ' . $answer['failed']);
        }
    }
    return array_column(array_column($answers, 'value'), 0);
}

/** Does each of the works in a process; an answer has the `value`, in an array, or says how the work `failed`. */
function answers_of(array $works): array
{
    [$pipes, $answers] = [[], []];
    foreach ($works as $work) {
        [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $process = pcntl_fork();
        if ($process === 0) {
            fclose($ours);
            fread($theirs, 1);
            fwrite($theirs, serialize(answer_of($work)));
            // Nothing is cleaned up, because that would say goodbye on the connections of the parent.
            posix_kill(posix_getpid(), SIGKILL);
        }
        fclose($theirs);
        stream_set_timeout($ours, 600);
        $pipes[$process] = $ours;
    }
    foreach ($pipes as $pipe) {
        fwrite($pipe, '.');
    }
    foreach ($pipes as $process => $pipe) {
        $text = stream_get_contents($pipe);
        pcntl_waitpid($process, $status);
        $end = pcntl_wifsignaled($status) ? 'by signal ' . pcntl_wtermsig($status) : 'with status ' . ($status >> 8);
        $answers[] = $text === '' ? ['failed' => "it ended $end"] : unserialize($text);
    }
    return $answers;
}

/** What a process has to say: the value that `$work` returns, or how it failed. */
function answer_of(callable $work): array
{
    try {
        return ['value' => [$work()]];
    } catch (Throwable $error) {
        return ['failed' => told($error)];
    }
}

/** Asks again and again, with a short rest after each answer that is not true, until `$wanted` answers were. */
function until_times(int $wanted, callable $ask): void
{
    for ($done = 0; $done < $wanted;) {
        if ($ask()) {
            $done++;
        } else {
            usleep(500);
        }
    }
}

/** What the server answers to `$request`, as far as it comes in one piece. */
function answer_to(string $host, int $port, string $request): string
{
    $socket = stream_socket_client("tcp://$host:$port", $code, $text, 20);
    stream_set_timeout($socket, 20);
    fwrite($socket, $request);
    $answer = fread($socket, 100_000);
    fclose($socket);
    return $answer;
}

/** Removes everything from the server. */
function empty_server(string $host, int $port): void
{
    if (!str_starts_with(answer_to($host, $port, "flush_all\r\n"), 'OK')) {
        answer_to($host, $port, "*1\r\n\$8\r\nFLUSHALL\r\n");
    }
}

/** Ends a check with a reason unless the server speaks RESP. */
function needs_resp(string $host, int $port): void
{
    static $speaks = null;
    $speaks ??= str_starts_with(answer_to($host, $port, "*1\r\n\$4\r\nPING\r\n"), '+PONG');
    if (!$speaks) {
        throw new Skipped('the server does not speak RESP');
    }
}

/** Ends a check with a reason unless the server speaks memcached's protocols. */
function needs_memcached(string $host, int $port): void
{
    static $speaks = null;
    $speaks ??= str_starts_with(answer_to($host, $port, "version\r\n"), 'VERSION');
    if (!$speaks) {
        throw new Skipped('the server does not speak the protocols of memcached');
    }
}

/** Ends a check with a reason unless the server is Larder. */
function needs_larder(string $host, int $port): void
{
    static $is = null;
    $is ??= str_contains(answer_to($host, $port, "*2\r\n\$4\r\nINFO\r\n\$6\r\nserver\r\n"), 'larder_version');
    if (!$is) {
        throw new Skipped('this is about Larder');
    }
}
