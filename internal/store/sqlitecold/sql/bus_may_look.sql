-- bus: whether bus_served.sql can be run. Reads nothing.
SELECT true
