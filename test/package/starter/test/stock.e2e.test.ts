import { type INestApplication } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { StockModule } from './../src/stock.module.js';
import { StockService } from './../src/stock.service.js';

// One static forRoot(), and one application per test, as in the starter's end-to-end test.
describe('StockService (e2e)', () => {
  let app: INestApplication;

  beforeEach(async () => {
    const module = await Test.createTestingModule({ imports: [StockModule] }).compile();
    app = module.createNestApplication();
    await app.init();
  });

  afterEach(() => app.close());

  it.each(['book', 'pen'])('sells one %s at a time', async (item) => {
    const stock = app.get(StockService);
    await Promise.all([1, 2, 3].map(() => stock.sell(item)));
    expect(stock.sold).toBe(3);
  });
});
