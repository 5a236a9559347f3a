<?php
/**
 * A page with a session: SESSION WHAT. Prints what is in the session in the end, or `refused`, as JSON.
 *
 * Of a long value it prints the hash.
 */

[, $session, $what] = $argv;
$warnings = [];
set_error_handler(function (int $severity, string $text) use (&$warnings): bool {
    $warnings[] = $text;
    return true;
});
ob_start();
session_id($session);

/** Starts the session, does `$work` in it, and ends it; returns what is in it. PHP warns of what goes wrong. */
function in_session(callable $work, array $options = []): array|string
{
    if (session_start($options)) {
        $work();
        session_write_close();
    }
    return $GLOBALS['warnings'] ? 'refused' : $_SESSION;
}

/** Says something to whoever started this page. */
function say(mixed $value): void
{
    if (isset($value['long'])) {
        $value['long'] = sha1($value['long']);
    }
    fwrite(STDOUT, json_encode($value) . "\n");
}

$count = function (): void {
    $_SESSION['count'] = ($_SESSION['count'] ?? 0) + 1;
};
say(match ($what) {
    'read' => in_session(fn () => null, ['read_and_close' => true]),
    'count' => in_session($count),
    'count many' => array_map(fn () => in_session($count), range(1, 25))[24],
    'fill' => in_session(function (): void {
        $_SESSION += ['name' => 'grüße', 'long' => str_repeat("\0\r\n\xff", 20_000)];
    }),
    'hold' => in_session(function (): void {
        say('held');
        fgets(STDIN);
        $_SESSION['held'] = true;
    }),
    'again' => in_session(function () use ($session): void {
        session_regenerate_id(true);
        $_SESSION['moved'] = session_id() !== $session;
    }),
    'destroy' => in_session(function (): void {
        $_SESSION = [];
        session_destroy();
    }),
});
