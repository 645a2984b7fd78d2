"""Processes beside this one: how one is started, asked, watched, ended and explained."""
