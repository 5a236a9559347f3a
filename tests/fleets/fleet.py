"""Larders that share out keys by one list, and what a test asks of them."""

import os
import signal

import support


class Node:
    """One server of a fleet: its name, port, slots, and its process while it runs."""

    def __init__(self, name, port, slots=None):
        self.name, self.port, self.slots, self.server = name, port, slots, None


class Fleet:
    """Servers on free ports of 127.0.0.1 with one settings file each. Used with `with`.

    `is_listed` = the settings files have the list of servers. Behind a proxy they need none.
    """

    def __init__(self, command, folder, names, is_listed=True):
        self.command, self.folder, self.is_listed, self.version = command, folder, is_listed, 1
        self.nodes = [Node(name, support.free_port()) for name in names]

    def write(self):
        """Writes the settings file of each server."""
        for own in self.nodes:
            with open(self.path(own), "w", encoding="ascii") as file:
                if not self.is_listed:
                    continue
                file.write('[fleet]\nself = "%s"\nversion = %d\n' % (own.name, self.version))
                for node in self.nodes:
                    file.write('[[fleet.node]]\nname = "%s"\nhost = "127.0.0.1"\nport = %d\n' % (node.name, node.port))
                    if node.slots:
                        file.write('slots = "%s"\n' % node.slots)

    def path(self, node):
        """The settings file of a server."""
        return os.path.join(self.folder, node.name + ".toml")

    def start(self, node):
        """Starts one server."""
        flags = ["--config", self.path(node), "--admin=off"]
        node.server = support.Server(self.command, flags, port=node.port)

    def stop(self, node, signal_number=signal.SIGTERM):
        """Ends one server."""
        node.server.stop(signal_number)

    def reload(self):
        """Writes the list again and tells the servers that run; returns once each has it."""
        self.version += 1
        self.write()
        for node in self.nodes:
            if node.server:
                node.server.process.send_signal(signal.SIGHUP)
        for node in self.nodes:
            if node.server:
                support.until(lambda: self.version_of(node) == self.version, "%s has the list" % node.name)

    @staticmethod
    def version_of(node):
        """The version of the list that a server has."""
        with node.server.connect() as connection:
            connection.send(b"config get cluster\r\n")
            text = connection.exactly(int(connection.line().split()[3]))
            return int(text.split(b"\n")[0])

    def __enter__(self):
        self.write()
        for node in self.nodes:
            self.start(node)
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            if node.server:
                node.server.stop()
