<?php
/** Sessions of PHP, kept by a session handler: each page is a process of its own, with its own settings of PHP. */

/** What starts pages of one kind. */
final class Pages
{
    /** A page without a browser has neither cookies nor headers. */
    private const ALWAYS = ['session.use_cookies' => 0, 'session.cache_limiter' => '', 'session.gc_probability' => 0];

    /** `$settings` are those of php.ini. */
    public function __construct(private array $settings)
    {
    }

    /** Starts a page with a session, which does what `session_page.php` lists; returns the process and its pipes. */
    public function start(string $session, string $what, array $more = []): array
    {
        $command = [PHP_BINARY, '-d', 'opcache.enable_cli=0'];
        foreach ($more + $this->settings + self::ALWAYS as $name => $value) {
            array_push($command, '-d', "$name=\"$value\"");
        }
        array_push($command, __DIR__ . '/session_page.php', $session, $what);
        $process = proc_open($command, [['pipe', 'r'], ['pipe', 'w'], ['file', '/dev/null', 'w']], $pipes);
        return [$process, $pipes];
    }

    /** What the page says in its next line. */
    public function line(array $page): mixed
    {
        return json_decode((string) fgets($page[1][1]), true);
    }

    /** Lets a page go on that holds its session, waits for its end, and returns what it says then. */
    public function end(array $page): mixed
    {
        fclose($page[1][0]);
        $answer = $this->line($page);
        fclose($page[1][1]);
        proc_close($page[0]);
        return $answer;
    }

    /** What a page has to say that waits for nothing. */
    public function page(string $session, string $what, array $more = []): mixed
    {
        return $this->end($this->start($session, $what, $more));
    }
}

/** The checks of a session handler, for a suite that has `$this->pages`. */
trait SessionChecks
{
    private Pages $pages;

    /** What one page has stored is there for the next. */
    public function sessions(): void
    {
        same($this->pages->page('first', 'read'), []);
        same($this->pages->page('first', 'count'), ['count' => 1]);
        $filled = ['count' => 1, 'name' => 'grüße', 'long' => sha1(str_repeat("\0\r\n\xff", 20_000))];
        same($this->pages->page('first', 'fill'), $filled);
        same($this->pages->page('first', 'read'), $filled);
        same($this->pages->page('second', 'read'), []);
        same($this->pages->page('first', 'again'), $filled + ['moved' => true]);
        same($this->pages->page('first', 'read'), []);
        same($this->pages->page('second', 'count'), ['count' => 1]);
        same($this->pages->page('second', 'destroy'), []);
        same($this->pages->page('second', 'read'), []);
    }

    /** Pages of one session wait for each other. */
    public function session_locks(): void
    {
        $pages = array_map(fn () => $this->pages->start('wanted', 'count many'), range(1, PROCESSES));
        foreach ($pages as $page) {
            holds($this->pages->end($page)['count']);
        }
        same($this->pages->page('wanted', 'read'), ['count' => PROCESSES * 25]);
    }

    /** A page that may not wait for a session is refused it while another has it. */
    public function session_lock_that_is_held(): void
    {
        $holder = $this->pages->start('held', 'hold');
        same($this->pages->line($holder), 'held');
        same($this->pages->page('held', 'count', self::IMPATIENT), 'refused');
        $patient = $this->pages->start('held', 'count');
        same($this->pages->end($holder), ['held' => true]);
        same($this->pages->end($patient), ['held' => true, 'count' => 1]);
        same($this->pages->page('held', 'count', self::IMPATIENT), ['held' => true, 'count' => 2]);
    }

    /** A session that nobody asks for ends. */
    public function session_that_ends(): void
    {
        $short = ['session.gc_maxlifetime' => EXPIRY_SECONDS];
        same($this->pages->page('brief', 'count', $short), ['count' => 1]);
        until(fn () => $this->pages->page('brief', 'read') === []);
    }
}
