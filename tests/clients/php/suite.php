<?php
/** Libraries for PHP, against a live server: HOST PORT phpredis|predis|symfony|symfony-tags|laravel|memcached. */

// Libraries that are older than the interpreter use what is deprecated by now. Every other warning fails a check.
error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
ini_set('display_errors', 'stderr');
set_error_handler(function (int $severity, string $text, string $file, int $line): bool {
    if (error_reporting() & $severity) {
        throw new ErrorException($text, 0, $severity, $file, $line);
    }
    return true;
});

require __DIR__ . '/checks.php';

[, $host, $port, $which] = $argv;
if (!in_array($which, ['phpredis', 'predis', 'symfony', 'symfony-tags', 'laravel', 'memcached'], true)) {
    fwrite(STDERR, "no such suite: $which\n");
    exit(2);
}
empty_server($host, (int) $port);
$checks = new Checks();
// Each file returns a function that says how to make its suites, in groups of those that may run together.
foreach ((require __DIR__ . "/$which.php")($host, (int) $port) as $group) {
    $checks->together($group);
}
$checks->end();
