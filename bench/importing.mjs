// Imports Nest, then these modules, and prints how many ms they took. Paths are relative to this file.
import 'reflect-metadata';
import '@nestjs/common';
import '@nestjs/core';

const startedAt = performance.now();
for (const module of process.argv.slice(2)) await import(module);
console.log(performance.now() - startedAt);
