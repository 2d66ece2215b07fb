"""Monitoring of a site: conditions, counters, rules, scrape targets and routes of alerts, as plain data."""
